"""VAE for single-cell counts: negative log-likelihood under a Poisson, Gaussian latent."""
import argparse
import time

import torch
import torch.nn as nn
import torch.distributions as D

GENES, LATENT, CELLS = 800, 64, 6000


def make_counts(gen):
    types = torch.randn(9, 12, generator=gen)
    which = torch.randint(0, 9, (CELLS,), generator=gen)
    state = types[which] + 0.3 * torch.randn(CELLS, 12, generator=gen)
    loading = torch.randn(12, GENES, generator=gen) * 0.25
    base = torch.randn(GENES, generator=gen) * 0.6 - 0.5
    depth = 1 + torch.rand(CELLS, 1, generator=gen)
    rate = depth * torch.exp((state @ loading + base).clamp(max=4))
    return torch.poisson(rate, generator=gen)


class FullPosterior:
    """Gaussian latent written with a covariance matrix."""

    def __init__(self):
        self.prior = D.MultivariateNormal(torch.zeros(LATENT), torch.eye(LATENT))

    def __call__(self, mean, var):
        return D.MultivariateNormal(mean, covariance_matrix=torch.diag_embed(var))

    def kl(self, q):
        return D.kl_divergence(q, self.prior)


class FactoredPosterior:
    """Gaussian latent written coordinate by coordinate."""

    def __init__(self):
        self.prior = D.Independent(D.Normal(torch.zeros(LATENT), torch.ones(LATENT)), 1)

    def __call__(self, mean, var):
        return D.Independent(D.Normal(mean, var.sqrt()), 1)

    def kl(self, q):
        return D.kl_divergence(q, self.prior.expand(q.batch_shape))


class CellVAE(nn.Module):
    def __init__(self, posterior):
        super().__init__()
        self.posterior = posterior
        self.enc = nn.Sequential(nn.Linear(GENES, 256), nn.LayerNorm(256), nn.SiLU(),
                                 nn.Linear(256, 2 * LATENT))
        self.dec = nn.Sequential(nn.Linear(LATENT, 256), nn.LayerNorm(256), nn.SiLU(),
                                 nn.Linear(256, GENES))

    def forward(self, counts):
        depth = counts.sum(1, keepdim=True)
        mean, raw = self.enc(torch.log1p(counts)).chunk(2, dim=1)
        q = self.posterior(mean, nn.functional.softplus(raw) + 1e-3)
        z = q.rsample()
        log_rate = torch.log_softmax(self.dec(z), dim=1) + torch.log(depth)
        nll = nn.functional.poisson_nll_loss(log_rate, counts, reduction="none").sum(1)
        return nll.mean(), self.posterior.kl(q).mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(4)

    counts = make_counts(gen)
    model = CellVAE(FactoredPosterior() if args.fix else FullPosterior())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    times = []
    for step in range(args.steps):
        t0 = time.perf_counter()
        x = counts[torch.randint(0, CELLS, (256,), generator=gen)]
        nll, kl = model(x)
        loss = nll + min(1.0, step / 50) * kl
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        times.append(time.perf_counter() - t0)
        if step % 20 == 0 or step == args.steps - 1:
            print(f"step {step} nll {nll.item():.3f} kl {kl.item():.4f}")
    tail = times[len(times) // 3:]
    print(f"mean step ms {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
