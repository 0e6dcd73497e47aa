"""DeepSurv on a synthetic registry: a small network gives each patient a log hazard, trained on Cox's partial likelihood."""
import argparse
import time

import torch
import torch.nn as nn

SIZES = {"cpu": dict(patients=24_000, covariates=60, hidden=96, batch=3072),
         "cuda": dict(patients=400_000, covariates=200, hidden=512, batch=32_768)}


def make_registry(n, p, seed=11):
    """Covariates in correlated blocks, Weibull survival times, uniform censoring."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, p, generator=g)
    x = 0.6 * x + 0.8 * x.roll(1, 1)
    beta = torch.randn(p, generator=g) / p ** 0.5
    risk = x @ beta + 0.5 * (x[:, 0] * x[:, 1]) - 0.3 * x[:, 2].abs()
    u = torch.rand(n, generator=g).clamp_(1e-6)
    survival = 8.0 * (-u.log() * torch.exp(-risk)).pow(1 / 1.4)
    censor = 20.0 * torch.rand(n, generator=g)
    return x, torch.minimum(survival, censor), (survival <= censor).float()


class HazardNet(nn.Module):
    def __init__(self, covariates, hidden, drop=0.1):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(covariates, hidden), nn.BatchNorm1d(hidden), nn.SELU(), nn.Dropout(drop),
            nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.SELU(), nn.Dropout(drop),
            nn.Linear(hidden, 1, bias=False))

    def forward(self, x):
        return self.layers(x).squeeze(1)


class NegativeLogPartialLikelihood(nn.Module):
    """-mean over events of  theta_i - log sum_{j: t_j >= t_i} exp(theta_j)."""

    def __init__(self, form=""):
        super().__init__()
        self.form = form

    def forward(self, theta, t, event):
        if self.form == "cumsum":
            order = torch.argsort(t, descending=True)
            theta, event = theta[order], event[order]
            log_risk = torch.logcumsumexp(theta, 0)
        elif self.form == "matvec":
            at_risk = (t[None, :] >= t[:, None]).float()
            log_risk = torch.log(at_risk @ torch.exp(theta))
        else:
            at_risk = (t[None, :] >= t[:, None]).float()
            log_risk = torch.log(torch.sum(torch.exp(theta)[None, :] * at_risk, dim=1))
        return -((theta - log_risk) * event).sum() / event.sum()


class L2(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, net):
        return self.weight * sum(p.pow(2).sum() for name, p in net.named_parameters() if name.endswith("weight"))


def batches(n, size, device):
    while True:
        order = torch.randperm(n, device=device)
        for start in range(0, n - size + 1, size):
            yield order[start:start + size]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fix", default="", choices=("", "cumsum", "matvec"))
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.manual_seed(0)
    s = SIZES["cuda" if args.device.startswith("cuda") else "cpu"]
    wait = torch.cuda.synchronize if args.device.startswith("cuda") else (lambda: None)

    x, t, event = (v.to(args.device) for v in make_registry(s["patients"], s["covariates"]))
    net = HazardNet(s["covariates"], s["hidden"]).to(args.device)
    criterion, penalty = NegativeLogPartialLikelihood(args.fix), L2(1e-4)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    feed = batches(len(x), s["batch"], args.device)

    losses = []
    for step in range(args.steps):
        if step == args.steps // 3:
            wait()
            start = time.perf_counter()
        rows = next(feed)
        loss = criterion(net(x[rows]), t[rows], event[rows]) + penalty(net)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    wait()
    spent = time.perf_counter() - start
    print(f"partial likelihood first {losses[0]:.5f} last {torch.stack(losses[-10:]).mean():.5f}")
    print(f"mean step ms {spent * 1e3 / (args.steps - args.steps // 3):.3f}")


if __name__ == "__main__":
    main()
