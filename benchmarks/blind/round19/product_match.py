"""Embeddings for matching product photos: a small residual network with an additive-angular-margin classifier
over the whole catalogue. The network runs in bfloat16; the margin head is kept in float32 for its arccosines.
"""

import math

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

FIXES = ["tf32-head", "bf16-product"]
STEPS = 36


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(cin), nn.Conv2d(cin, cout, 3, 1, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(cout), nn.Conv2d(cout, cout, 3, stride, 1, bias=False)
        self.act = nn.PReLU(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        return self.skip(x) + self.conv2(self.act(self.norm2(self.conv1(self.norm1(x)))))


class Encoder(nn.Module):
    def __init__(self, width, embedding, side):
        super().__init__()
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.stem = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.stages = nn.Sequential(*[Residual(a, b, 2) for a, b in zip(widths, widths[1:])])
        self.norm = nn.BatchNorm2d(widths[-1])
        self.flat = nn.Linear(widths[-1] * (side // 16) ** 2, embedding)
        self.last = nn.BatchNorm1d(embedding)

    def forward(self, x):
        return self.last(self.flat(self.norm(self.stages(self.stem(x))).flatten(1)))


class AngularMargin(nn.Module):
    """cos(theta + m) for the true product, cos(theta) for all others, times a scale."""

    def __init__(self, embedding, products, scale=48.0, margin=0.4, fix=None):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(products, embedding) * 0.01)
        self.scale, self.margin, self.fix = scale, margin, fix

    def forward(self, x, label):
        with torch.autocast(x.device.type, enabled=False):
            x, centres = F.normalize(x.float()), F.normalize(self.weight)
            if self.fix == "bf16-product":
                cosine = F.linear(x.bfloat16(), centres.bfloat16()).float()
            else:
                cosine = F.linear(x, centres)
            true = cosine.gather(1, label[:, None]).clamp(-1 + 1e-6, 1 - 1e-6)
            shifted = torch.cos(torch.acos(true) + self.margin)
            shifted = torch.where(true > math.cos(math.pi - self.margin), shifted, true - self.margin * math.sin(self.margin))
            logits = cosine.scatter(1, label[:, None], shifted) * self.scale
            return F.cross_entropy(logits, label)


def main():
    args = arguments(STEPS, FIXES)
    torch.manual_seed(11)
    if args.fix == "tf32-head":
        torch.set_float32_matmul_precision("high")
    products, embedding, batch, side, width, pool = (500000, 512, 512, 96, 32, 2048) if args.gpu else (300, 16, 6, 32, 4, 24)
    generator = torch.Generator(args.device).manual_seed(11)
    photos = torch.randint(256, (pool, 3, side, side), generator=generator, device=args.device, dtype=torch.uint8)
    labels = torch.randint(products, (pool,), generator=generator, device=args.device)

    encoder = Encoder(width, embedding, side).to(args.device, memory_format=torch.channels_last)
    head = AngularMargin(embedding, products, fix=args.fix).to(args.device)
    parameters = [*encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=5e-4, fused=args.gpu)
    clock = Clock(args.steps)
    for _ in range(args.steps):
        pick = torch.randint(pool, (batch,), generator=generator, device=args.device)
        images = (photos[pick].float() / 127.5 - 1).contiguous(memory_format=torch.channels_last)
        with torch.autocast(args.device.type, torch.bfloat16, enabled=args.gpu):
            loss = head(encoder(images), labels[pick])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        clock.tick()
    clock.report()
    print(f"loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
