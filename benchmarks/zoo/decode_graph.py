"""Token-by-token decoding at batch 1 with bf16 weights, the whole token captured in a CUDA graph.

Truth: bandwidth / memory-roof. Each token reads every weight once and does two FLOPs with it: the
step stands at the memory's speed, the host issues one graph launch a token. What is left is smaller
weights. A step is 8 tokens.
"""

import torch
from changes import compiled, switches
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["bandwidth", "memory-roof"]]
ALSO = []
FIXES = ["compile", "reduce_overhead", "tf32"]
TOKENS = 8
PARTS = 8  # findwall's step is one replay


class Block(nn.Module):
    def __init__(self, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.register_buffer("keys", torch.randn(1, heads, context, width // heads))
        self.register_buffer("values", torch.randn(1, heads, context, width // heads))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).view(1, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        self.keys[:, :, -1:].copy_(k)
        self.values[:, :, -1:].copy_(v)
        mixed = nn.functional.scaled_dot_product_attention(q, self.keys, self.values)
        x = x + self.out(mixed.transpose(1, 2).reshape(1, 1, -1))
        return x + self.down(nn.functional.silu(self.up(self.norm2(x))))


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    switches(fix)
    width, heads, depth, context = (8192, 64, 6, 512) if size == "gpu" else (32, 2, 2, 8)
    with torch.device(device):
        blocks = [Block(width, heads, context) for _ in range(depth)]
        model = nn.Sequential(*blocks).to(torch.bfloat16).requires_grad_(False)
    token = torch.randn(1, 1, width, device=device, dtype=torch.bfloat16)
    run = compiled(model, fix)
    own_graph = device == "cuda" and fix != "reduce_overhead"
    replay = capture(run, token) if own_graph else lambda: run(token)

    def step() -> None:
        for _ in range(TOKENS):
            replay()

    return step


def capture(model: nn.Module, token: torch.Tensor) -> Step:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(token)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(token)
    return graph.replay


if __name__ == "__main__":
    main(make)
