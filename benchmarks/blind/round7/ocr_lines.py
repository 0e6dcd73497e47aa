"""Transcribes scanned text lines in bulk with a convolutional recogniser.

Lines are 64 pixels high and as wide as they come; they are grouped by width, so a batch of 32 is padded to
its widest line and little is wasted. The convolutions run in bfloat16, channels last, with cuDNN's
autotuner switched on. The best character of every column stays on the device until a page's worth of
batches has been read. A step is one batch of lines.
"""

import random

import torch
from common import Clock, arguments
from torch import nn
from torch.nn import functional as F

WALLS = ["recompilation"]
FIXES = {
    "buckets": "pads every batch to one of three widths (multiples of 512), so that shapes come back",
    "no-autotune": "leaves cuDNN's autotuner off",
}
TRUTH_STEPS = 30

CHARACTERS = 120


class Stage(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.down = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)

    def forward(self, x):
        x = F.relu(self.norm1(self.down(x)))
        return F.relu(x + self.norm2(self.conv(x)))


class Recogniser(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stages = nn.Sequential(
            Stage(1, width, (2, 2)),
            Stage(width, 2 * width, (2, 2)),
            Stage(2 * width, 4 * width, (2, 1)),
            Stage(4 * width, 4 * width, (2, 1)),
        )
        self.head = nn.Linear(4 * width, CHARACTERS)

    def forward(self, lines):
        columns = self.stages(lines).mean(dim=2).transpose(1, 2)
        return self.head(columns).argmax(dim=-1)


def scan(batch, widest, device, source):
    """A batch of lines hardly shorter than the widest, white where they end."""
    lines = torch.rand(batch, 1, 64, widest, device=device)
    ends = torch.tensor([source.randint(widest * 9 // 10, widest) for _ in range(batch)])
    blank = torch.arange(widest, device=device) >= ends.to(device, non_blocking=True)[:, None]
    return lines.masked_fill_(blank[:, None, None], 1.0)


def main():
    args = arguments(100, list(FIXES))
    torch.manual_seed(0)
    source = random.Random(0)
    batch, width, narrow, wide = (32, 64, 520, 2000) if args.gpu else (2, 8, 40, 120)
    torch.backends.cudnn.benchmark = args.fix != "no-autotune"
    model = Recogniser(width).to(args.device, torch.bfloat16, memory_format=torch.channels_last).eval()
    step_width = 512 if args.gpu else 64
    page, pages, read = [], 0, 0

    clock = Clock(args.steps)
    with torch.inference_mode():
        for step in range(args.steps):
            lines = scan(batch, source.randint(narrow, wide), args.device, source)
            if args.fix == "buckets":
                padded = -(-lines.shape[-1] // step_width) * step_width
                lines = F.pad(lines, (0, padded - lines.shape[-1]), value=1.0)
            page.append(model(lines.to(torch.bfloat16, memory_format=torch.channels_last)))
            if len(page) == 64 or step == args.steps - 1:
                text = torch.cat([ids.flatten() for ids in page]).cpu()
                pages, read = pages + 1, read + len(text)
                page.clear()
            clock.tick()
    print(f"{pages} pages, {read} columns read")
    clock.report()


if __name__ == "__main__":
    main()
