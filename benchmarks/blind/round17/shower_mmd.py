"""Fast calorimeter simulation: an MLP turns (noise, beam energy) into cell deposits; trained by kernel two-sample distance (MMD)."""
import argparse
import time

import torch
from torch import nn

CELLS = 144            # 12 x 12 towers
WIDTHS = (0.2, 0.5, 1.0, 2.0, 5.0)


def simulate(n, gen):
    """Stand-in for the full detector simulation: a blurred spot with fluctuating core and tail."""
    axis = torch.arange(12.0)
    centre = 5.5 + 0.8 * torch.randn(n, 2, generator=gen)
    energy = 10 + 90 * torch.rand(n, 1, generator=gen)
    width = 0.9 + 0.15 * torch.randn(n, 1, generator=gen).abs() + 0.004 * energy
    px = torch.exp(-0.5 * ((axis - centre[:, :1]) / width) ** 2)
    py = torch.exp(-0.5 * ((axis - centre[:, 1:]) / width) ** 2)
    cells = (px[:, :, None] * py[:, None, :]).flatten(1)
    cells = energy * cells / cells.sum(1, keepdim=True)
    cells = cells * (1 + 0.2 * torch.randn(n, CELLS, generator=gen)).clamp_min(0)
    return torch.log1p(cells), energy / 100


class ShowerNet(nn.Module):
    def __init__(self, latent, width, depth):
        super().__init__()
        dims = [latent + 1] + [width] * depth
        self.trunk = nn.Sequential(*[layer for a, b in zip(dims, dims[1:]) for layer in (nn.Linear(a, b), nn.SiLU())])
        self.out = nn.Linear(width, CELLS)

    def forward(self, z, energy):
        return nn.functional.softplus(self.out(self.trunk(torch.cat([z, energy], 1))) - 2)


def squared_distances(a, b, how):
    if how == "gram":
        return torch.addmm(a.square().sum(1, keepdim=True) + b.square().sum(1), a, b.t(), alpha=-2).clamp_min(0)
    return (a.unsqueeze(1) - b.unsqueeze(0)).pow(2).sum(-1)


def multi_kernel(d2, scale):
    return sum(torch.exp(d2 * (-0.5 / (w * scale))) for w in WIDTHS)


def mmd(real, fake, scale, how):
    k_rr = multi_kernel(squared_distances(real, real, how), scale)
    k_ff = multi_kernel(squared_distances(fake, fake, how), scale)
    k_rf = multi_kernel(squared_distances(real, fake, how), scale)
    n = len(real)
    # diagonal entries are len(WIDTHS) each
    same = (k_rr.sum() + k_ff.sum() - 2 * n * len(WIDTHS)) / (n * (n - 1))
    return same - 2 * k_rf.mean()


def batches(cells, energy, size):
    while True:
        order = torch.randperm(len(cells), device=cells.device)
        for part in order.split(size)[:len(cells) // size]:
            yield torch.cat([cells[part], energy[part]], 1), energy[part]


def run(steps, how, device):
    torch.manual_seed(11)
    big = device == "cuda"
    size, latent, width, depth = (2048, 64, 2048, 4) if big else (192, 32, 512, 3)
    cells, energy = (t.to(device) for t in simulate(16384, torch.Generator().manual_seed(5)))
    probe = cells[:256]
    scale = torch.cdist(probe, probe).square().median()
    net = ShowerNet(latent, width, depth).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-4, fused=True)
    stream = batches(cells, energy, size)
    for step in range(steps):
        if step == steps // 3:
            if big:
                torch.cuda.synchronize()
            clock = time.perf_counter()
        real, cond = next(stream)
        fake = net(torch.randn(size, latent, device=device), cond)
        loss = mmd(real, torch.cat([fake, cond], 1), scale, how)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if big:
        torch.cuda.synchronize()
    elapsed = time.perf_counter() - clock
    print("final mmd %.5f" % loss.item())
    print("mean step ms %.3f" % (1e3 * elapsed / (steps - steps // 3)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--fix", default="direct", help="how distances are taken")
    parser.add_argument("--device", default="cpu")
    a = parser.parse_args()
    run(a.steps, a.fix, a.device)
