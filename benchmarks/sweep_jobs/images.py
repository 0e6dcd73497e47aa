"""Train a convolutional classifier on small pictures."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 10


class Pictures(Dataset[tuple[Tensor, int]]):
    """Crops of one large picture."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self.picture = torch.randn(3, 512, 512)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        x, y = at * 7 % (512 - self.size), at * 13 % (512 - self.size)
        return self.picture[:, y : y + self.size, x : x + self.size], at % CLASSES


def conv(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class Classifier(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        layers = [conv(3, width, 1)]
        for stage in range(3):
            inputs = width << stage
            layers += [conv(inputs, inputs, 1), conv(inputs, inputs, 1), conv(inputs, 2 * inputs, 2)]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(width << 3, CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.head(self.layers(pictures).mean(dim=(2, 3)))


def parsed(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
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
    pictures = Pictures(count=50_000, size=16 if args.tiny else 64)
    loader = DataLoader(pictures, args.batch_size, shuffle=True, num_workers=0, drop_last=True)
    model = Classifier(4 if args.tiny else 64).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if not len(loader):
        raise SystemExit("fewer samples than one batch")
    done = 0
    while True:
        for images, labels in loader:
            loss = F.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield len(labels)
            done += 1
            if done == args.steps:
                print(f"loss {loss.item():.4f}")
                return


def main() -> None:
    for _ in steps(parsed()):
        pass


if __name__ == "__main__":
    main()
