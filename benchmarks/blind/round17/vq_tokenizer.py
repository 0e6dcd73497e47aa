"""First stage of a two-stage image generator: VQ-VAE with an EMA codebook that turns 64x64 textures into a 16x16 token map."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class ResBlock(nn.Module):
    def __init__(self, ch, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.ReLU(), nn.Conv2d(ch, hidden, 3, padding=1), nn.ReLU(), nn.Conv2d(hidden, ch, 1))

    def forward(self, x):
        return x + self.net(x)


def encoder(ch, dim):
    return nn.Sequential(nn.Conv2d(3, ch // 2, 4, 2, 1), nn.ReLU(), nn.Conv2d(ch // 2, ch, 4, 2, 1),
                         ResBlock(ch, ch // 4), nn.ReLU(), nn.Conv2d(ch, dim, 1))


def decoder(ch, dim):
    return nn.Sequential(nn.Conv2d(dim, ch, 1), ResBlock(ch, ch // 4), nn.ReLU(),
                         nn.ConvTranspose2d(ch, ch // 2, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(ch // 2, 3, 4, 2, 1))


class Codebook(nn.Module):
    """Vector quantizer whose codes follow the assigned encodings by exponential moving averages."""

    def __init__(self, size, dim, fix, decay=0.99, eps=1e-5, beta=0.25):
        super().__init__()
        self.size, self.dim, self.decay, self.eps, self.beta, self.fix = size, dim, decay, eps, beta, fix
        codes = torch.randn(size, dim)
        self.register_buffer("codes", codes)
        self.register_buffer("ema_count", torch.ones(size))
        self.register_buffer("ema_sum", codes.clone())
        self.ready = False

    def nearest(self, flat):
        # |x|^2 is the same for every code and drops out of the argmin
        return torch.addmm(self.codes.square().sum(1), flat, self.codes.t(), alpha=-2).argmin(1)

    @torch.no_grad()
    def start_from(self, flat):
        self.codes.copy_(flat[torch.randint(len(flat), (self.size,), device=flat.device)])
        self.ema_sum.copy_(self.codes)
        self.ready = True

    @torch.no_grad()
    def update(self, count, total):
        self.ema_count.lerp_(count, 1 - self.decay)
        self.ema_sum.lerp_(total, 1 - self.decay)
        n = self.ema_count.sum()
        weight = (self.ema_count + self.eps) / (n + self.size * self.eps) * n
        self.codes.copy_(self.ema_sum / weight.unsqueeze(1))

    def forward(self, z):
        b, c, h, w = z.shape
        flat = z.permute(0, 2, 3, 1).reshape(-1, c)
        if not self.ready:
            self.start_from(flat)
        with torch.no_grad():
            idx = self.nearest(flat)
            if self.fix == "index":
                quant = F.embedding(idx, self.codes)
                count = torch.bincount(idx, minlength=self.size).to(flat.dtype)
                total = torch.zeros_like(self.codes).index_add_(0, idx, flat)
            else:
                assign = torch.zeros(flat.shape[0], self.size, device=z.device).scatter_(1, idx.unsqueeze(1), 1.0)
                quant = F.embedding(idx, self.codes) if self.fix == "index_read" else assign @ self.codes
                count = assign.sum(0)
                total = assign.t() @ flat
        commit = self.beta * F.mse_loss(flat, quant)
        if self.training:
            self.update(count, total)
        usage = count / flat.shape[0]
        perplexity = torch.exp(-(usage * (usage + 1e-10).log()).sum())
        quant = flat + (quant - flat).detach()
        return quant.view(b, h, w, c).permute(0, 3, 1, 2), commit, perplexity


class VQVAE(nn.Module):
    def __init__(self, ch, dim, codes, fix):
        super().__init__()
        self.enc, self.dec, self.vq = encoder(ch, dim), decoder(ch, dim), Codebook(codes, dim, fix)

    def forward(self, x):
        quant, commit, perplexity = self.vq(self.enc(x))
        recon = self.dec(quant)
        return F.mse_loss(recon, x) + commit, perplexity


def textures(count, size, device, gen):
    """Sum of a coarse and a fine random field, in [-1, 1]."""
    coarse = F.interpolate(torch.randn(count, 3, 4, 4, generator=gen), size=(size, size), mode="bicubic")
    fine = F.interpolate(torch.randn(count, 3, 16, 16, generator=gen), size=(size, size), mode="bilinear")
    return torch.tanh(coarse + 0.4 * fine).to(device)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", choices=["", "index", "index_read"])
    ap.add_argument("--device", default="cpu")
    args = ap.parse_args()
    big = args.device == "cuda"
    batch, ch, dim, codes = (256, 128, 64, 8192) if big else (32, 32, 64, 2048)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    images = textures(1024, 64, args.device, gen)
    model = VQVAE(ch, dim, codes, args.fix).to(args.device)
    opt = torch.optim.Adam(model.parameters(), lr=3e-4, fused=True)
    order = torch.randint(len(images), (args.steps, batch), generator=gen).to(args.device)

    for step in range(args.steps):
        if step == args.steps // 3:
            if big:
                torch.cuda.synchronize()
            start = time.perf_counter()
        loss, perplexity = model(images[order[step]])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
    if big:
        torch.cuda.synchronize()
    took = (time.perf_counter() - start) / (args.steps - args.steps // 3)
    print(f"loss {loss.item():.4f} perplexity {perplexity.item():.1f}")
    print(f"mean step ms {took * 1e3:.3f}")


if __name__ == "__main__":
    main()
