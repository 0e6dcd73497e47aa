"""Pick particles on cryo-EM micrographs: a quick network, fed with large images straight from ordinary memory.

Domain: science (electron microscopy), own conv net, bf16 channels_last, inference.
Why: a pair of micrographs is 189 MB of fp32 in pageable memory. `.to(device)` has to pass them through a staging buffer
    at some ten gigabytes a second, blocks the host until they are across, and nothing runs beside it; the network then
    needs a fraction of that time.
Trap: no DataLoader, so nothing looks like loading; the host stands in a copy call that synchronises, which looks like a
    sync; the first thing on the device is a cast of the whole image.
Fixes: pinned-prefetch (page-locked images, copied on a side stream while the pair before is worked on).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Clock, arguments

WALLS = [["data", "copy-exposed"]]
FIXES = ["pinned-prefetch"]
TRUTH_STEPS = 250


class Picker(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.enter = nn.Conv2d(16, width, 3, padding=1)
        self.body = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.leave = nn.Conv2d(width, 1, 1)

    def forward(self, micrographs):
        x = F.pixel_unshuffle(micrographs.to(self.leave.weight.dtype), 4).contiguous(memory_format=torch.channels_last)
        x = F.relu(self.enter(x), inplace=True)
        x = F.max_pool2d(x, 2)
        for conv in self.body:
            x = x + F.relu(conv(x), inplace=True)
        return torch.sigmoid(self.leave(x).float())


def best(heat, count):
    """The `count` strongest places of each micrograph that are the peak of their neighbourhood."""
    peaks = heat * (heat == F.max_pool2d(heat, 9, stride=1, padding=4))
    return peaks.flatten(1).topk(count, dim=1)


class Prefetched:
    """The next pair is on its way while this one is worked on."""

    def __init__(self, pairs, device):
        self.pairs, self.device = [pair.pin_memory() for pair in pairs], device
        self.stream = torch.cuda.Stream()
        self.send(0)

    def send(self, step):
        with torch.cuda.stream(self.stream):
            self.coming = self.pairs[step % len(self.pairs)].to(self.device, non_blocking=True)

    def __call__(self, step):
        torch.cuda.current_stream().wait_stream(self.stream)
        pair = self.coming
        pair.record_stream(torch.cuda.current_stream())
        self.send(step + 1)
        return pair


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    rows, columns, width, count = (4096, 5760, 64, 500) if args.gpu else (128, 192, 8, 10)

    dtype = torch.bfloat16 if args.gpu else torch.float32
    model = Picker(width).to(args.device, dtype).to(memory_format=torch.channels_last).eval()
    grain = torch.rand(rows, columns)
    pairs = [torch.stack([grain + 0.1 * i, grain.flip(0) - 0.1 * i]).unsqueeze(1) for i in range(3)]
    if args.fix == "pinned-prefetch" and args.gpu:
        fetch = Prefetched(pairs, args.device)
    else:
        def fetch(step):
            return pairs[step % len(pairs)].to(args.device)

    surest = torch.zeros((), device=args.device)
    clock = Clock(args.steps)
    with torch.inference_mode():
        for step in range(args.steps):
            strength, places = best(model(fetch(step)), count)
            surest.lerp_(strength[:, 0].mean(), 0.1)
            if step % 50 == 49:
                print(f"pair {step + 1} surest {surest.item():.4f}", flush=True)
            clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
