"""Single-shot detector (ResNet-50 + small FPN) with multi-scale training: a new image size every 10 steps, as YOLO does.

Why: `cudnn.benchmark = True` tries its algorithms anew for every convolution of every size it has not seen, and heights
and widths are drawn freely, so nearly each draw is new. Nine of ten steps are quick; the tenth takes a second or more.
Trap: any short look at the steady steps sees a healthy convolution job.
Fixes: no_benchmark: cudnn.benchmark off (plans must still be found). buckets: two sizes of the same mean area.
"""

import random

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["overhead", "recompilation"]]
FIXES = ["buckets", "no_benchmark"]
TRUTH_STEPS = 60
EVERY = 10


class SmallBody(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3, 8, 1), nn.Conv2d(8, 16, 3, 2, 1), nn.Conv2d(16, 32, 3, 2, 1)
        self.widths = (8, 16, 32)

    def forward(self, x):
        a = F.relu(self.a(x))
        b = F.relu(self.b(a))
        return a, b, F.relu(self.c(b))


class ResNetBody(nn.Module):
    def __init__(self):
        super().__init__()
        import torchvision

        net = torchvision.models.resnet50(weights=None)
        self.stem = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool, net.layer1)
        self.c3, self.c4, self.c5 = net.layer2, net.layer3, net.layer4
        self.widths = (512, 1024, 2048)

    def forward(self, x):
        c3 = self.c3(self.stem(x))
        c4 = self.c4(c3)
        return c3, c4, self.c5(c4)


class Detector(nn.Module):
    def __init__(self, body, width, classes):
        super().__init__()
        self.body = body
        self.lateral = nn.ModuleList(nn.Conv2d(w, width, 1) for w in body.widths)
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in body.widths)
        self.head = nn.Conv2d(width, classes + 4, 3, padding=1)

    def forward(self, images):
        maps = [lateral(c) for lateral, c in zip(self.lateral, self.body(images))]
        for i in (1, 0):
            maps[i] = maps[i] + F.interpolate(maps[i + 1], size=maps[i].shape[-2:])
        return torch.cat([self.head(s(m)).flatten(2) for s, m in zip(self.smooth, maps)], 2)


def main():
    args = arguments(150, FIXES, cpu_steps=20)
    torch.backends.cudnn.benchmark = args.fix != "no_benchmark"
    rng = random.Random(3)
    batch = 8 if args.gpu else 1
    low, high, grid = (512, 1024, 32) if args.gpu else (64, 128, 32)
    body = ResNetBody() if args.gpu else SmallBody()
    model = Detector(body, 256 if args.gpu else 8, 80).to(args.device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    canvas = torch.rand(batch, 3, high, high, device=args.device).contiguous(memory_format=torch.channels_last)
    bucket = [(640, 864), (864, 640)] if args.gpu else [(64, 96), (96, 64)]
    clock = Clock(args.steps, EVERY)
    for step in range(args.steps):
        if step % EVERY == 0:
            height, width = rng.randrange(low, high, grid), rng.randrange(low, high, grid)
            if args.fix == "buckets":
                height, width = bucket[(step // EVERY) % 2]
        images = F.interpolate(canvas, size=(height, width))
        with torch.autocast(args.device.type, torch.bfloat16):
            out = model(images)
        scores, boxes = out[:, 4:].float(), out[:, :4].float()
        loss = F.binary_cross_entropy_with_logits(scores, torch.zeros_like(scores)) + boxes.abs().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        clock.tick()
    print(f"last size {height}x{width}, loss {loss.item():.3f}")
    clock.report()


if __name__ == "__main__":
    main()
