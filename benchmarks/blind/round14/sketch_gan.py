"""Sketch generator: residual GAN with hinge loss and spectral-norm-free discriminator."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True


class UpBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.n1, self.n2 = nn.GroupNorm(8, cin), nn.GroupNorm(8, cout)
        self.c1, self.c2 = nn.Conv2d(cin, cout, 3, 1, 1), nn.Conv2d(cout, cout, 3, 1, 1)
        self.skip = nn.Conv2d(cin, cout, 1)

    def forward(self, x):
        u = F.interpolate(x, scale_factor=2)
        h = self.c1(F.interpolate(F.relu(self.n1(x)), scale_factor=2))
        h = self.c2(F.relu(self.n2(h)))
        return h + self.skip(u)


class DownBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(cin, cout, 3, 1, 1), nn.Conv2d(cout, cout, 3, 1, 1)
        self.skip = nn.Conv2d(cin, cout, 1)

    def forward(self, x):
        h = self.c2(F.leaky_relu(self.c1(F.leaky_relu(x, 0.2)), 0.2))
        return F.avg_pool2d(h, 2) + self.skip(F.avg_pool2d(x, 2))


class Generator(nn.Module):
    def __init__(self, z, c):
        super().__init__()
        self.fc = nn.Linear(z, 8 * c * 16)
        self.blocks = nn.Sequential(UpBlock(8 * c, 8 * c), UpBlock(8 * c, 4 * c), UpBlock(4 * c, 2 * c), UpBlock(2 * c, c))
        self.out = nn.Sequential(nn.GroupNorm(8, c), nn.ReLU(), nn.Conv2d(c, 1, 3, 1, 1), nn.Tanh())

    def forward(self, z):
        return self.out(self.blocks(self.fc(z).view(len(z), -1, 4, 4)))


class Discriminator(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.inp = nn.Conv2d(1, c, 3, 1, 1)
        self.blocks = nn.Sequential(DownBlock(c, 2 * c), DownBlock(2 * c, 4 * c), DownBlock(4 * c, 8 * c), DownBlock(8 * c, 8 * c))
        self.fc = nn.Linear(8 * c, 1)

    def forward(self, x):
        return self.fc(F.leaky_relu(self.blocks(self.inp(x)), 0.2).sum((2, 3)))


def sketches(n, device):
    g = torch.linspace(-1, 1, 64, device=device)
    cx, cy, r = (torch.rand(n, 1, 1, device=device) - 0.5 for _ in range(3))
    d = ((g[None, :, None] - cy).square() + (g[None, None] - cx).square()).sqrt() - (0.4 + 0.4 * r)
    return (2 * torch.exp(-(d / 0.05).square()) - 1).unsqueeze(1)


def train(args):
    dev = torch.device("cpu" if args.cpu else "cuda")
    torch.manual_seed(4)
    batch, zdim, c = (2, 16, 8) if args.tiny else (64, 128, 32)
    # D loss went to nan once around 40k iterations, keep an eye on it
    torch.autograd.set_detect_anomaly("no_anomaly" not in args.fix.split(","))
    G, D = Generator(zdim, c).to(dev), Discriminator(c).to(dev)
    og = torch.optim.Adam(G.parameters(), 1e-4, betas=(0.0, 0.99), fused=not args.cpu)
    od = torch.optim.Adam(D.parameters(), 4e-4, betas=(0.0, 0.99), fused=not args.cpu)
    real = sketches(batch * 20, dev)
    sync = torch.cuda.synchronize if dev.type == "cuda" else (lambda: None)
    tail = max(1, args.steps // 2)
    for it in range(args.steps):
        if it == args.steps - tail:
            sync()
            t0 = time.perf_counter()
        x = real[it % 20 * batch:(it % 20 + 1) * batch]
        with torch.no_grad():
            fake = G(torch.randn(batch, zdim, device=dev))
        ld = F.relu(1 - D(x)).mean() + F.relu(1 + D(fake)).mean()
        od.zero_grad()
        ld.backward()
        od.step()
        lg = -D(G(torch.randn(batch, zdim, device=dev))).mean()
        og.zero_grad()
        lg.backward()
        og.step()
        if it % 100 == 0:
            print(f"it {it} d {ld.item():.4f} g {lg.item():.4f}")
    sync()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / tail * 1e3:.3f}")
    print(f"final {ld.item():.5f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=50)
    ap.add_argument("--fix", default="")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    train(ap.parse_args())
