"""GPT-2 (124 million weights) trained in fp32, as a first script does: batch 16 of 1024 tokens, plain AdamW.

Truth: compute / fast-path-off. The products run in fp32 off the tensor cores. In bf16 the step is four times
shorter, and only then do the kernels between the products, and the vocabulary of 50257, take a share worth a
fix: the way to the end has two walls.
"""

import torch
from changes import compiled, optimizer_kind, precision
from fixclock import Step, device_of, main
from torch import nn
from torch.nn import functional

WALLS = [["compute", "fast-path-off"]]
ALSO = []
FIXES = ["bf16", "compile_bf16", "compile_bf16_fused"]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, tokens, width = x.shape
        parts = self.attend(self.before(x)).split(width, dim=2)
        q, k, v = (one.view(rows, tokens, self.heads, -1).transpose(1, 2) for one in parts)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, tokens, width))
        return x + self.narrow(functional.gelu(self.wide(self.between(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, words: int, tokens: int, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(words, width), nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, text: torch.Tensor, then: torch.Tensor) -> torch.Tensor:
        x = self.word(text) + self.place(torch.arange(text.shape[1], device=text.device))
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.last(x)).flatten(0, 1), then.flatten())


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, words, tokens, width, depth = (16, 50257, 1024, 768, 12) if size == "gpu" else (2, 97, 16, 32, 2)
    model = Gpt(words, tokens, width, heads=width // 64 or 2, depth=depth).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, **optimizer_kind(fix))
    text = torch.randint(words, (batch, tokens + 1), device=device)
    run = compiled(model, fix)

    def step() -> None:
        with precision(device, fix):
            loss = run(text[:, :-1], text[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main(make, FIXES, steps=40)
