"""Rolls out an ensemble of global wind forecasts and archives every lead time.

A vision-transformer emulator steps eight members forward six hours at a time. The full-resolution fields of
the last few lead times are kept in host memory for the verification that runs when the rollout ends.
"""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["overhead", "host-sync"]]
FIXES = {
    "pinned_stream": "fields go to a ring of pinned buffers on a side stream while the next step runs",
    "half_archive": "fields are archived as fp16: half the bytes to bring back",
}
TRUTH_STEPS = 70
PATCH, KEEP = 8, 4


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Emulator(nn.Module):
    def __init__(self, channels, grid, width, depth):
        super().__init__()
        self.grid = (grid[0] // PATCH, grid[1] // PATCH)
        self.embed = nn.Linear(channels * PATCH**2, width)
        self.place = nn.Parameter(torch.zeros(1, self.grid[0] * self.grid[1], width))
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(depth))
        self.head = nn.Linear(width, channels * PATCH**2)

    def forward(self, state):
        b, c, h, w = state.shape
        rows, columns = self.grid
        x = (
            state.view(b, c, rows, PATCH, columns, PATCH)
            .permute(0, 2, 4, 1, 3, 5)
            .reshape(b, rows * columns, -1)
        )
        x = self.embed(x) + self.place
        for block in self.blocks:
            x = block(x)
        x = self.head(x).view(b, rows, columns, c, PATCH, PATCH)
        return x.permute(0, 3, 1, 4, 2, 5).reshape(b, c, h, w)


class PinnedArchive:
    """A ring of pinned buffers, filled on a stream of its own."""

    def __init__(self, like):
        self.fields = [torch.empty(like.shape, dtype=like.dtype, pin_memory=True) for _ in range(KEEP)]
        self.stream = torch.cuda.Stream()

    def store(self, lead, state):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.fields[lead % KEEP].copy_(state, non_blocking=True)
        state.record_stream(self.stream)


class HostArchive:
    def __init__(self, dtype):
        self.fields, self.dtype = [None] * KEEP, dtype

    def store(self, lead, state):
        self.fields[lead % KEEP] = state.to(self.dtype).cpu()


@torch.inference_mode()
def main():
    args = arguments(400, list(FIXES))
    members, channels, grid, width, depth = (
        (8, 20, (360, 720), 768, 4) if args.gpu else (2, 4, (32, 64), 64, 2)
    )
    torch.manual_seed(0)
    model = Emulator(channels, grid, width, depth).to(args.device, torch.bfloat16).eval()
    state = torch.randn(members, channels, *grid, device=args.device)
    if args.fix == "pinned_stream" and args.gpu:
        archive = PinnedArchive(state)
    else:
        archive = HostArchive(torch.float16 if args.fix == "half_archive" else torch.float32)
    clock = Clock(args.steps)
    for lead in range(args.steps):
        state = 0.9 * state + 0.1 * model(state.to(torch.bfloat16)).float()
        archive.store(lead, state)
        clock.tick()
    clock.report()
    spread = torch.stack([field[:, 0].float().std(0).mean() for field in archive.fields if field is not None])
    print("spread of the last lead times", spread.tolist())


if __name__ == "__main__":
    main()
