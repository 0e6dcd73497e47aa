"""Train a ranker with embeddings on rows of a table. Each row is read for itself: the loader is the wall."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

COLUMNS, NUMBERS = 16, 32


class Rows(Dataset[tuple[Tensor, Tensor, Tensor]]):
    def __init__(self, count: int, ids: int) -> None:
        self.ids = torch.randint(ids, (count, COLUMNS))
        self.numbers = torch.randn(count, NUMBERS)
        self.clicks = torch.randint(2, (count,)).float()

    def __len__(self) -> int:
        return len(self.clicks)

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.ids[at], self.numbers[at].clamp(-3, 3).log1p().nan_to_num(), self.clicks[at]


class Ranker(nn.Module):
    def __init__(self, ids: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(ids, width) for _ in range(COLUMNS))
        self.layers = nn.Sequential(
            nn.Linear(COLUMNS * width + NUMBERS, 1024),
            nn.ReLU(),
            nn.Linear(1024, 512),
            nn.ReLU(),
            nn.Linear(512, 1),
        )

    def forward(self, ids: Tensor, numbers: Tensor) -> Tensor:
        found = [table(ids[:, at]) for at, table in enumerate(self.tables)]
        return self.layers(torch.cat([*found, numbers], dim=1)).squeeze(1)


def parsed(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
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
    ids = 1000 if args.tiny else 20_000
    rows = Rows(count=500_000, ids=ids)
    loader = DataLoader(
        rows, args.batch_size, shuffle=True, num_workers=0 if args.tiny else 2, drop_last=True
    )
    model = Ranker(ids, 8 if args.tiny else 64).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    if not len(loader):
        raise SystemExit("fewer samples than one batch")
    done = 0
    while True:
        for ids_, numbers, clicks in loader:
            scores = model(ids_.to(device), numbers.to(device))
            loss = F.binary_cross_entropy_with_logits(scores, clicks.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield len(clicks)
            done += 1
            if done == args.steps:
                print(f"loss {loss.item():.4f}")
                return


def main() -> None:
    for _ in steps(parsed()):
        pass


if __name__ == "__main__":
    main()
