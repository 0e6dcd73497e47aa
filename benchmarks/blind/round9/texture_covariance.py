"""Classifies rock and soil textures: a small convolutional trunk, second-order (covariance) pooling with a
matrix square root by Newton-Schulz iterations, and a linear classifier. Patches stay on the device."""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["compute", "fast-path-off"]]
FIXES = {
    "tf32": "float32 matrix products may use TF32",
    "fused-adam": "Adam in one fused kernel",
}
TRUTH_STEPS = 105


def conv(inputs, outputs, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class Trunk(nn.Module):
    def __init__(self, width, channels):
        super().__init__()
        self.layers = nn.Sequential(
            conv(3, width, 2),
            conv(width, width * 2, 2),
            conv(width * 2, width * 2),
            conv(width * 2, width * 4, 2),
            conv(width * 4, width * 4),
            nn.Conv2d(width * 4, channels, 1),
        )

    def forward(self, images):
        return self.layers(images)


class CovariancePool(nn.Module):
    """Square root of the channel covariance; kept in float32 because the iteration is touchy."""

    def __init__(self, channels, iterations=5):
        super().__init__()
        self.iterations = iterations
        self.register_buffer("eye", torch.eye(channels))

    def forward(self, maps):
        with torch.autocast(maps.device.type, enabled=False):
            samples = maps.float().flatten(2)
            samples = samples - samples.mean(2, keepdim=True)
            covariance = samples @ samples.transpose(1, 2) / samples.shape[2] + 1e-3 * self.eye
            trace = covariance.diagonal(dim1=1, dim2=2).sum(1)[:, None, None]
            y = covariance / trace
            z = self.eye.expand_as(y)
            for _ in range(self.iterations):
                mid = torch.baddbmm(self.eye.expand_as(y), z, y, beta=1.5, alpha=-0.5)
                y = torch.bmm(y, mid)
                z = torch.bmm(mid, z)
            return y * trace.sqrt()


class TextureNet(nn.Module):
    def __init__(self, width, channels, classes):
        super().__init__()
        self.trunk = Trunk(width, channels)
        self.pool = CovariancePool(channels)
        self.norm = nn.LayerNorm(channels)
        self.classify = nn.Linear(channels * channels, classes)

    def forward(self, images):
        second_order = self.norm(self.pool(self.trunk(images)))
        return self.classify(second_order.flatten(1))


def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(1)
    batch, side, width, channels = (128, 128, 64, 512) if args.gpu else (4, 32, 8, 32)
    classes = 47
    if args.fix == "tf32":
        torch.set_float32_matmul_precision("high")
    model = TextureNet(width, channels, classes).to(args.device, memory_format=torch.channels_last)
    fused = args.fix == "fused-adam"
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, fused=True if fused else None)

    patches = torch.rand(batch * 4, 3, side, side, device=args.device)
    labels = torch.randint(0, classes, (batch * 4,), device=args.device)

    clock = Clock(args.steps)
    for step in range(args.steps):
        first = (step % 4) * batch
        images = patches[first : first + batch].contiguous(memory_format=torch.channels_last)
        target = labels[first : first + batch]
        with torch.autocast(args.device.type, dtype=torch.bfloat16):
            scores = model(images)
            loss = F.cross_entropy(scores, target, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
