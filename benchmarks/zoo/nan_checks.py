"""A GPT hunted for NaNs: a forward hook on every module asks whether its output holds one.

Truth: overhead / host-sync. `if torch.isnan(output).any()` makes the host wait for the device after
every layer norm, linear and block, some two hundred times a step, and the device then waits for the
host. Without the hooks the host is far ahead.
"""

import torch
from fixclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "host-sync"]]
ALSO = []
FIXES = ["no_hooks"]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(self.act(self.up(self.norm2(x))))


def refuse_nan(module: nn.Module, inputs: object, output: torch.Tensor) -> None:
    if torch.isnan(output).any() or torch.isinf(output).any():
        raise FloatingPointError(f"{type(module).__name__} gave NaN or infinity")


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    rows, length, vocabulary, width, depth = (8, 512, 8192, 1024, 24) if size == "gpu" else (2, 8, 64, 32, 1)
    words = nn.Embedding(vocabulary, width)
    blocks = [Block(width, max(1, width // 64)) for _ in range(depth)]
    model = nn.Sequential(words, *blocks, nn.Linear(width, vocabulary, bias=False))
    model = model.to(device, torch.bfloat16)
    if fix is None:
        for module in model.modules():
            module.register_forward_hook(refuse_nan)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(vocabulary, (rows, length + 1), device=device)

    def step() -> None:
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main(make, FIXES)
