"""DCGAN much as the tutorial has it: discriminator on real, discriminator on fake, generator, two Adams,
and five numbers read with `.item()` every step.

Truth: the host. At 64 images of 64x64 the device needs 4 of 12 ms; issuing three forward and backward
passes and two optimizers is the rest. The five reads make host and device take turns, which costs
little, since the device is far ahead anyway.

Fixes: no_item: the five numbers are not read. fused: both Adams fused. cuda_graph: the whole step
(without the reads) captured and replayed.
"""

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "launch-bound"]]
ALSO = []
FIXES = ["no_item", "fused", "cuda_graph"]


def generator(latent: int, width: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    widths = [latent, width * 8, width * 4, width * 2, width]
    for i in range(4):
        stride, pad = (1, 0) if i == 0 else (2, 1)
        layers.append(nn.ConvTranspose2d(widths[i], widths[i + 1], 4, stride, pad, bias=False))
        layers += [nn.BatchNorm2d(widths[i + 1]), nn.ReLU(True)]
    return nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())


def discriminator(width: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
    for i in range(3):
        layers.append(nn.Conv2d(width << i, width << (i + 1), 4, 2, 1, bias=False))
        layers += [nn.BatchNorm2d(width << (i + 1)), nn.LeakyReLU(0.2, inplace=True)]
    return nn.Sequential(*layers, nn.Conv2d(width * 8, 1, 4, 1, 0, bias=False), nn.Flatten(0))


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, latent, width = (64, 100, 64) if size == "gpu" else (4, 16, 8)
    net_g, net_d = generator(latent, width).to(device), discriminator(width).to(device)
    criterion = nn.BCEWithLogitsLoss()
    kind = {"fused": fix == "fused" or None, "capturable": fix == "cuda_graph"}
    optimizer_d = torch.optim.Adam(net_d.parameters(), lr=2e-4, betas=(0.5, 0.999), **kind)
    optimizer_g = torch.optim.Adam(net_g.parameters(), lr=2e-4, betas=(0.5, 0.999), **kind)
    real = torch.rand(batch, 3, 64, 64, device=device) * 2 - 1
    ones, zeros = torch.ones(batch, device=device), torch.zeros(batch, device=device)
    reads = fix not in ("no_item", "cuda_graph")
    history: list[tuple[float, ...]] = []

    def step() -> None:
        net_d.zero_grad()
        output = net_d(real)
        loss_real = criterion(output, ones)
        loss_real.backward()
        d_x = output.sigmoid().mean().item() if reads else 0.0
        noise = torch.randn(batch, latent, 1, 1, device=device)
        fake = net_g(noise)
        output = net_d(fake.detach())
        loss_fake = criterion(output, zeros)
        loss_fake.backward()
        d_g_z1 = output.sigmoid().mean().item() if reads else 0.0
        optimizer_d.step()
        net_g.zero_grad()
        output = net_d(fake)
        loss_g = criterion(output, ones)
        loss_g.backward()
        d_g_z2 = output.sigmoid().mean().item() if reads else 0.0
        optimizer_g.step()
        if reads:
            history.append(((loss_real + loss_fake).item(), loss_g.item(), d_x, d_g_z1, d_g_z2))

    return capture(step) if fix == "cuda_graph" else step


def capture(step: Step) -> Step:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


if __name__ == "__main__":
    main(make)
