"""A DCGAN on a thousand pictures: two Adams, an epoch of 16 batches, a sheet of samples after each.

Truth: data / loader-starved. The loader's workers end with every epoch. Each new one reads the
dataset's index (a JSON file) again before its first picture, half a second in which the loop stands in
the loader; the sheet of samples takes a tenth of that. persistent_workers=True reads the index once.
"""

import itertools
import json
import struct
import tempfile
import zlib
from pathlib import Path

import torch
from fixclock import Clock, arguments, device_of
from torch import nn
from torch.utils.data import DataLoader, Dataset

WALLS = [["data", "loader-starved"]]
ALSO = []
FIXES = ["persistent"]
PERIOD = 16
LATENT = 100


class Faces(Dataset):
    """Pictures named in an index, of which this set uses the first few. Opened by each worker for itself."""

    def __init__(self, index: Path, count: int) -> None:
        self.index, self.count = index, count
        self.rows: list[dict[str, object]] | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> torch.Tensor:
        if self.rows is None:
            self.rows = json.loads(self.index.read_text())
        seed = self.rows[number]["seed"]
        return torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def write_index(path: Path, rows: int) -> None:
    names = [
        {
            "file": f"faces/{i:08d}.jpg",
            "seed": i,
            "box": [i % 97, i % 89, 178, 218],
            "tags": ["face", f"p{i % 991}"],
        }
        for i in range(rows)
    ]
    path.write_text(json.dumps(names))


def generator(width: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    widths = [LATENT, width * 8, width * 4, width * 2, width]
    for i in range(4):
        stride, pad = (1, 0) if i == 0 else (2, 1)
        layers.append(nn.ConvTranspose2d(widths[i], widths[i + 1], 4, stride, pad, bias=False))
        layers += [nn.BatchNorm2d(widths[i + 1]), nn.ReLU(True)]
    return nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())


def critic(width: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
    for i in range(3):
        layers.append(nn.Conv2d(width << i, width << (i + 1), 4, 2, 1, bias=False))
        layers += [nn.BatchNorm2d(width << (i + 1)), nn.LeakyReLU(0.2, inplace=True)]
    return nn.Sequential(*layers, nn.Conv2d(width * 8, 1, 4, 1, 0, bias=False), nn.Flatten(0))


def write_png(path: Path, pictures: torch.Tensor, across: int) -> None:
    """A sheet of pictures in [-1, 1]."""
    count, colours, height, width = pictures.shape
    sheet = pictures.view(count // across, across, colours, height, width).permute(0, 3, 1, 4, 2)
    pixels = ((sheet + 1) * 127.5).byte().reshape(count // across * height, -1).cpu().numpy()
    raw = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", across * width, len(pixels), 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + parts)


def main() -> None:
    chosen = arguments(FIXES, steps=160)
    device = device_of(chosen.size)
    batch, width, workers, listed = (64, 64, 4, 120_000) if chosen.size == "gpu" else (4, 8, 2, 2000)
    torch.manual_seed(0)
    folder = tempfile.TemporaryDirectory()
    index = Path(folder.name) / "index.json"
    write_index(index, listed)
    loader = DataLoader(
        Faces(index, PERIOD * batch),
        batch,
        shuffle=True,
        num_workers=workers,
        pin_memory=device == "cuda",
        persistent_workers=chosen.fix == "persistent",
    )
    net_g, net_d = generator(width).to(device), critic(width).to(device)
    optimizer_d = torch.optim.Adam(net_d.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer_g = torch.optim.Adam(net_g.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(batch, device=device), torch.zeros(batch, device=device)
    always = torch.randn(batch, LATENT, 1, 1, device=device)
    clock = Clock(chosen, PERIOD, PERIOD)
    for epoch in itertools.count():
        for number, real in enumerate(loader):
            real = real.to(device, non_blocking=True)
            fake = net_g(torch.randn(batch, LATENT, 1, 1, device=device))
            optimizer_d.zero_grad()
            (criterion(net_d(real), ones) + criterion(net_d(fake.detach()), zeros)).backward()
            optimizer_d.step()
            optimizer_g.zero_grad()
            criterion(net_d(fake), ones).backward()
            optimizer_g.step()
            if number == PERIOD - 1:
                with torch.no_grad():
                    write_png(Path(folder.name) / f"epoch{epoch % 10}.png", net_g(always), min(8, batch))
            if clock.done():
                return


if __name__ == "__main__":
    main()
