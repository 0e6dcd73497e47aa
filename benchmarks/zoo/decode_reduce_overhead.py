"""One conversation decoded with `torch.compile(mode="reduce-overhead")`, bf16 weights.

Truth: bandwidth / memory-roof. The compiled token is a replayed graph of a few fused kernels between
matrix-vector products that read 18 GB of weights, each once. int8 weights, widened inside the product,
are half the bytes.
"""

import torch
from fixclock import Step, device_of, main
from torch import nn

WALLS = [["bandwidth", "memory-roof"]]
ALSO = []
FIXES = ["int8_weights"]


class Narrow(nn.Module):
    """Weights in int8 with a scale a row; the compiler widens them where they are multiplied."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        scale = weight.abs().amax(1, keepdim=True) / 127
        self.weight = nn.Buffer((weight / scale).round().to(torch.int8))
        self.scale = nn.Buffer(scale[:, 0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight.to(x.dtype)) * self.scale


class Block(nn.Module):
    def __init__(self, width: int, heads: int, context: int, narrow: bool) -> None:
        super().__init__()
        self.heads = heads

        def linear(inner: int, outer: int) -> nn.Module:
            made = nn.Linear(inner, outer, bias=False)
            return Narrow(made) if narrow else made

        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = linear(width, 3 * width), linear(width, width)
        self.up, self.down = linear(width, 4 * width), linear(4 * width, width)
        self.keys = nn.Buffer(torch.zeros(1, heads, context, width // heads))
        self.values = nn.Buffer(torch.zeros(1, heads, context, width // heads))

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).view(1, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        self.keys[:, :, place] = k
        self.values[:, :, place] = v
        mixed = nn.functional.scaled_dot_product_attention(q, self.keys, self.values)
        x = x + self.out(mixed.transpose(1, 2).reshape(1, 1, -1))
        return x + self.down(nn.functional.silu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(
        self, vocabulary: int, width: int, heads: int, depth: int, context: int, narrow: bool
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([Block(width, heads, context, narrow) for _ in range(depth)])
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        for block in self.blocks:
            x = block(x, place)
        return self.head(self.norm(x)).argmax(-1)


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    vocabulary, width, heads, depth, context = (
        (8192, 12288, 96, 5, 512) if size == "gpu" else (64, 32, 2, 1, 8)
    )
    narrow = fix == "int8_weights"
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = Decoder(vocabulary, width, heads, depth, context, narrow).requires_grad_(False)
    torch.set_default_dtype(usual)
    # Products with one row as a fused sum: then the widening of int8 is inside and not a pass of its own.
    torch._inductor.config.coordinate_descent_tuning = narrow
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    ids = torch.zeros(1, 1, dtype=torch.long, device=device)
    place = torch.zeros(1, dtype=torch.long, device=device)

    @torch.no_grad()
    def step() -> None:
        nonlocal ids
        # The graph's output is overwritten by its next replay.
        ids = compiled(ids, place).clone()
        place.add_(1).remainder_(context)

    return step


if __name__ == "__main__":
    main(make, FIXES, steps=400)
