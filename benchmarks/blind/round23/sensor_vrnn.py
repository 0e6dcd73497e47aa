"""Variational recurrent network on multichannel sensor sequences."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_sequences(n, length, channels):
    g = torch.Generator().manual_seed(1)
    t = torch.arange(length).float()[None, :, None]
    freq = torch.rand(n, 1, channels, generator=g) * 0.6 + 0.05
    phase = torch.rand(n, 1, channels, generator=g) * 6.28
    return torch.sin(freq * t + phase) + 0.1 * torch.randn(n, length, channels, generator=g)


class VRNN(nn.Module):
    def __init__(self, x_dim, h_dim=96, z_dim=16):
        super().__init__()
        self.h_dim = h_dim
        self.phi_x = nn.Sequential(nn.Linear(x_dim, h_dim), nn.ReLU())
        self.phi_z = nn.Sequential(nn.Linear(z_dim, h_dim), nn.ReLU())
        self.enc = nn.Sequential(nn.Linear(2 * h_dim, h_dim), nn.ReLU(), nn.Linear(h_dim, 2 * z_dim))
        self.prior = nn.Sequential(nn.Linear(h_dim, h_dim), nn.ReLU(), nn.Linear(h_dim, 2 * z_dim))
        self.dec = nn.Sequential(nn.Linear(2 * h_dim, h_dim), nn.ReLU(), nn.Linear(h_dim, 2 * x_dim))
        self.rnn = nn.GRUCell(2 * h_dim, h_dim)

    @staticmethod
    def kl(m1, s1, m2, s2):
        return 0.5 * (2 * (s2 - s1) + ((2 * s1).exp() + (m1 - m2) ** 2) / (2 * s2).exp() - 1)

    def forward(self, x):
        b, length, _ = x.shape
        h = x.new_zeros(b, self.h_dim)
        feats = self.phi_x(x)
        nll, kld = 0.0, 0.0
        for t in range(length):
            fx = feats[:, t]
            q_mu, q_ls = self.enc(torch.cat([fx, h], 1)).chunk(2, 1)
            p_mu, p_ls = self.prior(h).chunk(2, 1)
            q_ls, p_ls = q_ls.clamp(-5, 3), p_ls.clamp(-5, 3)
            z = q_mu + q_ls.exp() * torch.randn_like(q_mu)
            fz = self.phi_z(z)
            x_mu, x_ls = self.dec(torch.cat([fz, h], 1)).chunk(2, 1)
            x_ls = x_ls.clamp(-4, 3)
            nll = nll + (0.5 * ((x[:, t] - x_mu) / x_ls.exp()) ** 2 + x_ls).sum(1).mean()
            kld = kld + self.kl(q_mu, q_ls, p_mu, p_ls).sum(1).mean()
            h = self.rnn(torch.cat([fx, fz], 1), h)
        return nll / length, kld / length


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--fix", default="")
    args = p.parse_args()
    torch.manual_seed(0)
    if args.fix != "v2":
        torch.autograd.set_detect_anomaly(True)

    data = make_sequences(512, 24, 12)
    model = VRNN(data.shape[-1])
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    batch_size = 32

    for step in range(args.steps):
        if step == args.steps // 3:
            t0 = time.perf_counter()
        x = data[torch.randint(0, len(data), (batch_size,))]
        nll, kld = model(x)
        beta = min(1.0, step / 200)
        loss = nll + beta * kld
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        if step % 50 == 0:
            print(f"step {step} nll {nll.item():.4f} kl {kld.item():.4f}")
    ms = (time.perf_counter() - t0) / (args.steps - args.steps // 3) * 1e3
    print(f"final loss {loss.item():.6f}")
    print(f"mean step ms {ms:.2f}")


if __name__ == "__main__":
    main()
