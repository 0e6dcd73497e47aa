"""Accelerated multi-coil MRI: an unrolled variational network trained on undersampled k-space.

Eight cascades, each a data-consistency step in k-space and a small convolutional regulariser in image space.
"""

import os
import sys

# compute-sanitizer finds writes out of bounds only where every tensor is an allocation of its own
if not any("caching" in word for word in sys.argv[1:]):
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"

import torch
from common import Clock, arguments
from torch import nn

WALLS = [["overhead", "allocator"]]
FIXES = {"caching": "PYTORCH_NO_CUDA_MEMORY_CACHING is no longer set: freed blocks are used again"}
TRUTH_STEPS = 24


def to_image(kspace):
    return torch.fft.ifft2(kspace, norm="ortho")


def to_kspace(image):
    return torch.fft.fft2(image, norm="ortho")


class Cascade(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.5))
        self.regulariser = nn.Sequential(
            nn.Conv2d(2, width, 3, padding=1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(width, width, 3, padding=1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(width, 2, 3, padding=1),
        )

    def forward(self, kspace, measured, mask, maps):
        consistency = self.weight * mask * (kspace - measured)
        image = (to_image(kspace) * maps.conj()).sum(1)
        x = torch.view_as_real(image).permute(0, 3, 1, 2)
        x = self.regulariser(x.contiguous()).permute(0, 2, 3, 1).contiguous()
        prior = to_kspace(torch.view_as_complex(x).unsqueeze(1) * maps)
        return kspace - consistency - prior


class Unrolled(nn.Module):
    def __init__(self, cascades, width):
        super().__init__()
        self.cascades = nn.ModuleList(Cascade(width) for _ in range(cascades))

    def forward(self, measured, mask, maps):
        kspace = measured
        for cascade in self.cascades:
            kspace = cascade(kspace, measured, mask, maps)
        return (to_image(kspace) * maps.conj()).sum(1).abs()


def slices(count, batch, coils, size, device):
    """Random phantoms: coil maps of unit power, k-space, a mask of every fourth line and the centre."""
    mask = torch.zeros(size, device=device)
    mask[::4] = 1
    mask[size // 2 - size // 24 : size // 2 + size // 24] = 1
    out = []
    for _ in range(count):
        maps = torch.randn(batch, coils, size, size, dtype=torch.complex64, device=device)
        maps = maps / maps.abs().pow(2).sum(1, keepdim=True).sqrt()
        target = torch.rand(batch, size, size, device=device)
        kspace = to_kspace(target.unsqueeze(1) * maps) * mask
        out.append((kspace, mask, maps, target))
    return out


def main():
    args = arguments(130, list(FIXES))
    cascades, width, batch, coils, size = (8, 32, 4, 12, 320) if args.gpu else (2, 4, 1, 2, 48)
    torch.manual_seed(0)
    model = Unrolled(cascades, width).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=args.gpu)
    pool = slices(4, batch, coils, size, args.device)
    clock = Clock(args.steps)
    for step in range(args.steps):
        kspace, mask, maps, target = pool[step % len(pool)]
        loss = (model(kspace, mask, maps) - target).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.tick()
    clock.report()
    print("loss", float(loss.detach()))


if __name__ == "__main__":
    main()
