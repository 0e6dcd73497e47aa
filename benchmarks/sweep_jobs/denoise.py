"""Train a U-Net with group norms that takes the noise out of pictures."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


class Crops(Dataset[Tensor]):
    """Crops of one large picture."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self.picture = torch.randn(3, 1024, 1024)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> Tensor:
        x, y = at * 7 % (1024 - self.size), at * 13 % (1024 - self.size)
        return self.picture[:, y : y + self.size, x : x + self.size]


def block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.GroupNorm(8, outputs),
        nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.GroupNorm(8, outputs),
        nn.SiLU(),
    )


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = block(3, width)
        self.downs = nn.ModuleList(block(width << at, width << (at + 1)) for at in range(3))
        self.ups = nn.ModuleList(block(3 * width << at, width << at) for at in reversed(range(3)))
        self.last = nn.Conv2d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        skips = []
        for down in self.downs:
            skips.append(x)
            x = down(F.avg_pool2d(x, 2))
        for up in self.ups:
            x = up(torch.cat([F.interpolate(x, scale_factor=2.0), skips.pop()], dim=1))
        return self.last(x)


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
    loader = DataLoader(Crops(20_000, 32 if args.tiny else 128), batch_size=args.batch_size, drop_last=True)
    model = UNet(8 if args.tiny else 64).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    if not len(loader):
        raise SystemExit("fewer samples than one batch")
    done = 0
    while True:
        for clean in loader:
            clean = clean.to(device)
            noise = torch.randn_like(clean)
            loss = F.mse_loss(model(clean + 0.3 * noise), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield len(clean)
            done += 1
            if done == args.steps:
                print(f"loss {loss.item():.4f}")
                return


def main() -> None:
    for _ in steps(parsed()):
        pass


if __name__ == "__main__":
    main()
