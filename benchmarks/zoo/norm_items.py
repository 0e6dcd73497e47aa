"""A GPT that logs the norm of every parameter and of its gradient, each read with `.item()`.

Truth: overhead / host-sync. Some six hundred reads a step: each waits for the queue to empty, and the
device then waits for the next launch. Forward and backward alone keep the device busy with the host
ahead. All norms in two calls over lists and one read give the time back.
"""

import torch
from fixclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "host-sync"]]
ALSO = []
FIXES = ["one_read", "no_norms"]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    rows, length, vocabulary, width, depth = (12, 512, 8192, 1024, 24) if size == "gpu" else (2, 8, 64, 32, 1)
    words = nn.Embedding(vocabulary, width)
    blocks = [Block(width, max(1, width // 64)) for _ in range(depth)]
    model = nn.Sequential(words, *blocks, nn.Linear(width, vocabulary, bias=False))
    model = model.to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(vocabulary, (rows, length + 1), device=device)
    history: dict[str, float] = {}

    def log_norms() -> None:
        for name, parameter in model.named_parameters():
            history[f"weight/{name}"] = parameter.detach().norm().item()
            history[f"gradient/{name}"] = parameter.grad.norm().item()

    def log_norms_at_once() -> None:
        names, parameters = zip(*model.named_parameters(), strict=True)
        weights = torch._foreach_norm([parameter.detach() for parameter in parameters])
        gradients = torch._foreach_norm([parameter.grad for parameter in parameters])
        values = torch.stack([*weights, *gradients]).tolist()
        keys = [f"weight/{name}" for name in names] + [f"gradient/{name}" for name in names]
        history.update(zip(keys, values, strict=True))

    def step() -> None:
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        if fix == "one_read":
            log_norms_at_once()
        elif fix is None:
            log_norms()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main(make, FIXES)
