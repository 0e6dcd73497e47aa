"""Train a small GPT on tokens, with an evaluation every 50 steps."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY = 8192


class Text(Dataset[Tensor]):
    """Windows of one long text."""

    def __init__(self, count: int, length: int) -> None:
        self.count, self.length = count, length
        self.tokens = torch.randint(VOCABULARY, (1 << 20,))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> Tensor:
        start = at * 31 % (len(self.tokens) - self.length - 1)
        return self.tokens[start : start + self.length + 1]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(rows, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp(self.norms[1](x))


class Gpt(nn.Module):
    def __init__(self, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, width // 32) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def loss_of(model: Gpt, tokens: Tensor, device: str) -> Tensor:
    tokens = tokens.to(device)
    with torch.autocast(device, torch.bfloat16):
        scores = model(tokens[:, :-1])
    return F.cross_entropy(scores.float().flatten(0, 1), tokens[:, 1:].flatten())


@torch.no_grad()
def evaluated(model: Gpt, loader: DataLoader[Tensor], device: str) -> float:
    model.eval()
    losses = [loss_of(model, tokens, device) for tokens in loader]
    model.train()
    return torch.stack(losses).mean().item()


def parsed(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--memory-gib", type=float, default=6)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    return parser.parse_args(given)


def steps(args: argparse.Namespace) -> Iterator[int]:
    """Train; after each step the number of its samples."""
    torch.manual_seed(0)
    device = "cpu" if args.cpu else "cuda"
    if not args.cpu:
        share = args.memory_gib * 2**30 / torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(min(1.0, share))
    length = 32 if args.tiny else 256
    train, kept = Text(count=20_000, length=length), Text(count=32, length=length)
    loader = DataLoader(train, args.batch_size, shuffle=True, drop_last=True)
    evaluation = DataLoader(kept, batch_size=4)
    model = (Gpt(64, 2, length) if args.tiny else Gpt(512, 6, length)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    if not len(loader):
        raise SystemExit("fewer samples than one batch")
    done = 0
    while True:
        for tokens in loader:
            loss = loss_of(model, tokens, device)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield len(tokens)
            if (done + 1) % 50 == 0:
                print(f"step {done + 1} evaluation {evaluated(model, evaluation, device):.4f}")
            done += 1
            if done == args.steps:
                print(f"loss {loss.item():.4f}")
                return


def main() -> None:
    for _ in steps(parsed()):
        pass


if __name__ == "__main__":
    main()
