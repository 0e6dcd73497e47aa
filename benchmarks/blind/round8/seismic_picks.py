"""First-arrival picking over a seismic survey.

Shot gathers (1200 traces of 1536 samples) lie in host memory as the reader left them; each step takes 32 of
them to the device, runs the trace network and keeps the arrival index of every trace.
"""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["data", "copy-exposed"]]
FIXES = {
    "pinned_ahead": "gathers in pinned memory, the next batch copied on a side stream meanwhile",
    "half": "gathers kept as fp16 in host memory: half the bytes to copy",
}
TRUTH_STEPS = 120
PATCH = 32


class TraceNet(nn.Module):
    """Every trace is cut into patches of 32 samples; each patch gets a score for every sample in it."""

    def __init__(self, width):
        super().__init__()
        self.embed = nn.Linear(PATCH, width)
        self.mix = nn.Linear(width, width)
        self.score = nn.Linear(width, PATCH)

    def forward(self, traces):
        shots, count, samples = traces.shape
        x = traces.reshape(shots, count, samples // PATCH, PATCH)
        x = F.relu(self.embed(x), inplace=True)
        x = F.relu(self.mix(x), inplace=True)
        return self.score(x).reshape(shots, count, samples).argmax(-1)


def survey(blocks, shots, traces, samples, dtype):
    """A few blocks of shots, made from one noisy gather at different gains."""
    gather = torch.randn(traces, samples)
    gather[:, samples // 3 :] += torch.sin(torch.arange(samples - samples // 3) * 0.3) * 4
    gains = torch.linspace(0.5, 2.0, blocks)
    return [(gather * gain).to(dtype).repeat(shots, 1, 1) for gain in gains]


def pick_plainly(model, blocks, picks, steps, device, clock):
    for step in range(steps):
        traces = blocks[step % len(blocks)].to(device)
        picks[step % len(picks)] = model(traces.to(torch.bfloat16))
        clock.tick()


def pick_ahead(model, blocks, picks, steps, device, clock):
    blocks = [block.pin_memory() for block in blocks]
    side = torch.cuda.Stream()
    here = torch.cuda.current_stream()
    landing = [torch.empty_like(blocks[0], device=device) for _ in range(2)]
    landed = [torch.cuda.Event() for _ in landing]
    free = [torch.cuda.Event() for _ in landing]

    def fetch(step):
        slot = step % 2
        with torch.cuda.stream(side):
            side.wait_event(free[slot])
            landing[slot].copy_(blocks[step % len(blocks)], non_blocking=True)
            landed[slot].record(side)

    fetch(0)
    for step in range(steps):
        if step + 1 < steps:
            fetch(step + 1)
        slot = step % 2
        here.wait_event(landed[slot])
        picks[step % len(picks)] = model(landing[slot].to(torch.bfloat16))
        free[slot].record(here)
        clock.tick()


@torch.inference_mode()
def main():
    args = arguments(700, list(FIXES))
    shots, traces, samples, width = (32, 1200, 1536, 128) if args.gpu else (2, 20, 256, 16)
    torch.manual_seed(0)
    model = TraceNet(width).to(args.device, torch.bfloat16).eval()
    blocks = survey(3, shots, traces, samples, torch.float16 if args.fix == "half" else torch.float32)
    picks = torch.zeros(16, shots, traces, dtype=torch.long, device=args.device)
    clock = Clock(args.steps)
    ahead = args.fix == "pinned_ahead" and args.gpu
    (pick_ahead if ahead else pick_plainly)(model, blocks, picks, args.steps, args.device, clock)
    clock.report()
    print("median pick", int(picks[(args.steps - 1) % len(picks)].median()))


if __name__ == "__main__":
    main()
