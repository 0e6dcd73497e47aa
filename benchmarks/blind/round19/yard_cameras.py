"""Safety monitoring of a freight yard: frames of all cameras go through a single-stage detector, a set per step."""

from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

FIXES = ["bytes-first", "pinned"]
STEPS = 36
MEAN, STD = (0.43, 0.44, 0.42), (0.24, 0.23, 0.25)


class Decoder:
    """Stands for the video decoder: the newest frame of every camera, as (cameras, height, width, 3) bytes."""

    def __init__(self, cameras, height, width, ring=4, seed=12):
        rng = np.random.default_rng(seed)
        self.ring = rng.integers(0, 256, (ring, cameras, height, width, 3), dtype=np.uint8)
        self.turn = 0

    def read(self):
        self.turn += 1
        return self.ring[self.turn % len(self.ring)]


class ConvUnit(nn.Sequential):
    def __init__(self, cin, cout, stride=1, size=3):
        super().__init__(nn.Conv2d(cin, cout, size, stride, size // 2), nn.SiLU(inplace=True))


class Stage(nn.Module):
    def __init__(self, cin, cout, depth):
        super().__init__()
        self.down = ConvUnit(cin, cout, 2)
        self.left, self.right = ConvUnit(cout, cout // 2, size=1), ConvUnit(cout, cout // 2, size=1)
        self.deep = nn.Sequential(*[ConvUnit(cout // 2, cout // 2) for _ in range(depth)])
        self.join = ConvUnit(cout, cout, size=1)

    def forward(self, x):
        x = self.down(x)
        return self.join(torch.cat([self.deep(self.left(x)), self.right(x)], 1))


class Detector(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width, 16 * width]
        self.stem = ConvUnit(3, width, 2)
        self.stages = nn.ModuleList(Stage(a, b, 3) for a, b in pairwise(widths))
        self.heads = nn.ModuleList(nn.Conv2d(w, 5 + classes, 1) for w in widths[2:])

    def forward(self, x):
        x, found = self.stem(x), []
        for i, stage in enumerate(self.stages):
            x = stage(x)
            if i > 0:
                found.append(self.heads[i - 1](x).flatten(2))
        return torch.cat(found, 2).transpose(1, 2)


class Monitor:
    def __init__(self, model, network_size, device, dtype, fix):
        self.model, self.size, self.device, self.dtype, self.fix = model, network_size, device, dtype, fix
        self.mean, self.std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
        self.mean_there, self.std_there = self.mean.to(device), self.std.to(device)

    def preprocess(self, frames):
        if self.fix == "bytes-first":
            x = torch.from_numpy(frames).to(self.device).permute(0, 3, 1, 2).float() / 255.0
            x = (x - self.mean_there) / self.std_there
        else:
            x = torch.from_numpy(frames).permute(0, 3, 1, 2).float() / 255.0
            x = (x - self.mean) / self.std
            if self.fix == "pinned" and self.device.type == "cuda":
                x = x.pin_memory()
            x = x.to(self.device, non_blocking=self.fix == "pinned")
        x = F.interpolate(x, size=self.size, mode="bilinear", antialias=True)
        return x.to(self.dtype).contiguous(memory_format=torch.channels_last)

    @torch.inference_mode()
    def detect(self, frames, keep=100):
        """The `keep` best boxes of each camera, with scores and classes."""
        out = self.model(self.preprocess(frames)).float()
        score, kind = (out[..., 4:5].sigmoid() * out[..., 5:].softmax(-1)).max(-1)
        best = score.topk(keep, dim=1)
        boxes = out[..., :4].gather(1, best.indices[..., None].expand(-1, -1, 4))
        return torch.cat([boxes, best.values[..., None], kind.gather(1, best.indices)[..., None].float()], -1).cpu()


def main():
    args = arguments(STEPS, FIXES)
    torch.manual_seed(12)
    cameras, frame, network, width, classes, keep = (4, (1080, 1920), (384, 640), 48, 12, 100)
    if not args.gpu:
        cameras, frame, network, width, classes, keep = (2, (90, 160), (32, 64), 4, 3, 5)
    dtype = torch.float16 if args.gpu else torch.float32
    model = Detector(width, classes).to(args.device, dtype, memory_format=torch.channels_last).eval()
    decoder = Decoder(cameras, *frame)
    monitor = Monitor(model, network, args.device, dtype, args.fix)
    clock, alarms, strongest = Clock(args.steps), 0, 0.0
    for _ in range(args.steps):
        rows = monitor.detect(decoder.read(), keep)
        alarms += int((rows[..., 4] > 0.5).sum())
        strongest = max(strongest, rows[..., 4].max().item())
        clock.tick()
    clock.report()
    print(f"alarms {alarms} strongest {strongest:.5f}")


if __name__ == "__main__":
    main()
