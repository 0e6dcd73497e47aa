"""Train a tagger of sounds: convolutions over a spectrum, then an LSTM."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

BANDS, TAGS = 80, 40


class Tagger(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv1d(BANDS, width, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.ReLU(),
        )
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, TAGS)

    def forward(self, spectra: Tensor) -> Tensor:
        return self.head(self.lstm(self.convs(spectra).transpose(1, 2))[0])


def parsed(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
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
    frames = 64 if args.tiny else 400
    sounds = TensorDataset(torch.randn(4096, BANDS, frames), torch.randint(TAGS, (4096, frames // 4)))
    loader = DataLoader(sounds, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = Tagger(16 if args.tiny else 384).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if not len(loader):
        raise SystemExit("fewer samples than one batch")
    done = 0
    while True:
        for spectra, tags in loader:
            scores = model(spectra.to(device))
            loss = F.cross_entropy(scores.flatten(0, 1), tags.to(device).flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            yield len(tags)
            done += 1
            if done == args.steps:
                print(f"loss {loss.item():.4f}")
                return


def main() -> None:
    for _ in steps(parsed()):
        pass


if __name__ == "__main__":
    main()
