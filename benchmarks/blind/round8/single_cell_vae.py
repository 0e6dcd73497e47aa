"""A wide variational autoencoder of single-cell expression counts.

Twenty thousand genes in and out, small batches, TF32 matmuls. The optimizer is the lab's own: Adam with
decoupled decay that also keeps the averaged weights used for imputation.
"""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["bandwidth", "unfused-optimizer"]]
FIXES = {"fused": "torch.optim.AdamW(fused=True), the average updated with one foreach lerp"}
TRUTH_STEPS = 150


class AveragedAdam(torch.optim.Optimizer):
    """Adam as in the paper, decay apart from the gradient, and an exponential average of the weights."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.999), eps=1e-8, decay=0.01, average=0.999):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "decay": decay, "average": average})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["t"] = 0
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                    state["average"] = p.detach().clone()
                state["t"] += 1
                m, v, average = state["m"], state["v"], state["average"]
                m.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                m_hat = m / (1 - beta1 ** state["t"])
                v_hat = v / (1 - beta2 ** state["t"])
                update = m_hat / (v_hat.sqrt() + group["eps"])
                update = update + group["decay"] * p
                p.sub_(group["lr"] * update)
                average.mul_(group["average"]).add_(p, alpha=1 - group["average"])


class FusedWithAverage:
    def __init__(self, params, lr=1e-4, decay=0.01, average=0.999, fused=True):
        self.params = list(params)
        self.average, self.rate = [p.detach().clone() for p in self.params], 1 - average
        self.adam = torch.optim.AdamW(self.params, lr=lr, weight_decay=decay, fused=fused)

    def zero_grad(self):
        self.adam.zero_grad()

    @torch.no_grad()
    def step(self):
        self.adam.step()
        torch._foreach_lerp_(self.average, self.params, self.rate)


class Autoencoder(nn.Module):
    def __init__(self, genes, wide, narrow, latent):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(genes, wide),
            nn.ReLU(),
            nn.Linear(wide, narrow),
            nn.ReLU(),
            nn.Linear(narrow, 2 * latent),
        )
        self.decoder = nn.Sequential(
            nn.Linear(latent, narrow), nn.ReLU(), nn.Linear(narrow, wide), nn.ReLU(), nn.Linear(wide, genes)
        )

    def forward(self, counts):
        mean, log_var = self.encoder(torch.log1p(counts)).chunk(2, -1)
        latent = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        divergence = -0.5 * (1 + log_var - mean**2 - log_var.exp()).sum(-1).mean()
        return self.decoder(latent), divergence


def main():
    args = arguments(850, list(FIXES))
    genes, wide, narrow, batch = (20000, 16384, 2048, 128) if args.gpu else (256, 128, 64, 8)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    with args.device:
        model = Autoencoder(genes, wide, narrow, 64)
    if args.fix == "fused":
        optimizer = FusedWithAverage(model.parameters(), fused=args.gpu)
    else:
        optimizer = AveragedAdam(model.parameters())
    cells = torch.poisson(torch.full((16, batch, genes), 0.7, device=args.device))
    clock = Clock(args.steps)
    for step in range(args.steps):
        counts = cells[step % len(cells)]
        log_rate, divergence = model(counts)
        loss = F.poisson_nll_loss(log_rate, counts) + 1e-3 * divergence
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
