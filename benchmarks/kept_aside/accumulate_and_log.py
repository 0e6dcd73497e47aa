"""A small GPT with four micro-batches a step, logging loss and accuracy of each with `.item()`.
Attention is written out by hand, the optimizer is AdamW as it comes.

Truth: the device, with the host close behind. The device works about 27 of 32 ms, a large part of it
memory traffic of the written-out attention (scores, mask, softmax, casts). The `.item()` calls of each
micro-batch let the queue run empty four times a step and cost a few percent. With sdpa the device needs
so much less that the host's issuing is then about as long.

Fixes: sdpa: scaled_dot_product_attention. log_once: loss and accuracy added up on the device, one read
a step. fused: AdamW(fused=True).
"""

import os

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["bandwidth", "unfused-attention"]]
ALSO = [["overhead", "host-sync"]]
FIXES = ["sdpa", "log_once", "fused"]


class Block(nn.Module):
    def __init__(self, width: int, heads: int, length: int, sdpa: bool) -> None:
        super().__init__()
        self.heads, self.sdpa = heads, sdpa
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln1(x)).split(c, dim=2)
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in (q, k, v))
        if self.sdpa:
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (c // self.heads) ** -0.5
            att = att.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
            y = nn.functional.softmax(att, dim=-1) @ v
        x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.mlp(self.ln2(x))


class SmallGPT(nn.Module):
    def __init__(self, vocabulary: int, length: int, width: int, heads: int, depth: int, sdpa: bool) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads, length, sdpa) for _ in range(depth)])
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.ln(self.blocks(x)))


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    shape = (4096, 512, 768, 12, 2) if size == "gpu" else (64, 16, 32, 2, 1)
    micro, rows = (4, 16) if size == "gpu" else (2, 2)
    vocabulary, length = shape[:2]
    model = SmallGPT(*shape, sdpa=fix == "sdpa").to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=fix == "fused" or None)
    ids = torch.randint(vocabulary, (micro, rows, length + 1), device=device)
    log = open(os.devnull, "w")  # noqa: SIM115  (kept open for the life of the job)

    def step() -> None:
        seen = []
        for i in range(micro):
            with torch.autocast(device, torch.bfloat16):
                logits = model(ids[i, :, :-1])
                targets = ids[i, :, 1:]
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()) / micro
            loss.backward()
            accuracy = (logits.argmax(-1) == targets).float().mean()
            if fix == "log_once":
                seen.append(torch.stack([loss.detach(), accuracy]))
            else:
                log.write(f"micro {i} loss {loss.item() * micro:.4f} accuracy {accuracy.item():.4f}\n")
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if fix == "log_once":
            loss_sum, accuracy_sum = torch.stack(seen).sum(0).tolist()
            log.write(f"loss {loss_sum:.4f} accuracy {accuracy_sum / micro:.4f}\n")
        log.write(f"norm {norm.item():.4f}\n")

    return step


if __name__ == "__main__":
    main(make)
