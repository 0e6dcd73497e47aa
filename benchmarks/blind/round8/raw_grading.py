"""Grades raw 4K footage for a training set.

A small network looks at a thumbnail of every frame and predicts its exposure, white balance and tone curve;
the full frames then go through the grade: black level, balance, colour matrix, highlight recovery, filmic
curve, saturation, display transfer.
"""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["bandwidth", "unfused-pointwise"]]
FIXES = {"compile": "torch.compile on the grade: its chain becomes one or two kernels"}
TRUTH_STEPS = 220
MATRIX = [[1.66, -0.53, -0.13], [-0.12, 1.28, -0.16], [-0.03, -0.29, 1.32]]
LUMA = [0.2126, 0.7152, 0.0722]


class Grader(nn.Module):
    """Six numbers a frame: exposure, two balance gains, contrast, shoulder, saturation."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=4, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=4, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 6),
        )

    def forward(self, thumbnails):
        return torch.tanh(self.body(thumbnails))


def grade(raw, knobs, matrix, luma):
    exposure, red, blue, contrast, shoulder, saturation = knobs[:, :, None, None, None].unbind(1)
    x = (raw - 0.0625).clamp_min(0) / (1 - 0.0625)
    x = x * torch.exp2(exposure)
    balance = torch.cat([1 + 0.3 * red, torch.ones_like(red), 1 + 0.3 * blue], 1)
    x = x * balance
    from_red, from_green, from_blue = matrix[..., None, None].unbind(2)
    x = x[:, 0:1] * from_red + x[:, 1:2] * from_green + x[:, 2:3] * from_blue
    x = x.clamp_min(0)
    bright = torch.sigmoid((x - 0.9) * 12)
    x = x * (1 - bright) + (0.9 + torch.log1p((x - 0.9).clamp_min(0))) * bright
    pivot = 0.18
    x = pivot * ((x + 1e-6) / pivot) ** (1 + 0.3 * contrast)
    a, b, c, d, e = 2.51, 0.03, 2.43 + 0.2 * shoulder, 0.59, 0.14
    x = (x * (a * x + b)) / (x * (c * x + d) + e)
    x = x.clamp(0, 1)
    grey = (x * luma).sum(1, keepdim=True)
    x = grey + (x - grey) * (1 + 0.3 * saturation)
    x = x.clamp(0, 1)
    x = torch.where(x <= 0.0031308, 12.92 * x, 1.055 * (x + 1e-8) ** (1 / 2.4) - 0.055)
    return (x * 255 + 0.5).to(torch.uint8)


@torch.inference_mode()
def main():
    args = arguments(1200, list(FIXES))
    frames, height, width = (8, 2160, 3840) if args.gpu else (1, 108, 192)
    torch.manual_seed(0)
    grader = Grader().to(args.device).eval()
    matrix = torch.tensor([MATRIX], device=args.device)
    luma = torch.tensor(LUMA, device=args.device)[None, :, None, None]
    clips = [torch.rand(frames, 3, height, width, device=args.device) for _ in range(4)]
    apply = torch.compile(grade, dynamic=False) if args.fix == "compile" else grade
    graded = torch.empty(frames, 3, height, width, dtype=torch.uint8, device=args.device)
    clock = Clock(args.steps)
    for step in range(args.steps):
        raw = clips[step % len(clips)]
        knobs = grader(F.interpolate(raw, size=(128, 128)))
        graded.copy_(apply(raw, knobs, matrix, luma))
        clock.tick()
    clock.report()
    print("mean level", float(graded[0].float().mean()))


if __name__ == "__main__":
    main()
