"""Survival from expression profiles of a whole biobank cohort: a network trained on the Cox partial likelihood.

The risk set of a patient is everyone still under observation at that time, so every step sees the whole cohort.
"""

import torch
from common import Clock, arguments
from torch import nn

FIXES = ["sorted-scan", "matrix-vector"]
STEPS = 30


def cox_loss(hazard, time, observed, fix):
    """Negative log partial likelihood per patient; times are continuous, so there are no ties."""
    hazard = hazard.float()
    if fix == "sorted-scan":
        order = torch.argsort(time, descending=True)
        hazard, observed = hazard[order], observed[order]
        log_risk = torch.logcumsumexp(hazard, 0)
    else:
        at_risk = (time[None, :] >= time[:, None]).float()
        exp_hazard = hazard.exp()
        if fix == "matrix-vector":
            log_risk = torch.log(at_risk @ exp_hazard)
        else:
            log_risk = torch.log((exp_hazard * at_risk).sum(1))
    return -((hazard - log_risk) * observed).mean()


class RiskNet(nn.Module):
    def __init__(self, genes, width, dropout):
        super().__init__()
        sizes = [genes, width, width // 2, width // 4]
        layers = []
        for a, b in zip(sizes, sizes[1:]):
            layers += [nn.Linear(a, b), nn.SELU(), nn.AlphaDropout(dropout)]
        self.body = nn.Sequential(*layers)
        self.risk = nn.Linear(sizes[-1], 1, bias=False)

    def forward(self, x):
        return self.risk(self.body(x))[:, 0]


def cohort(patients, genes, generator, device):
    """Exponential event times with a log hazard linear in some genes, censored at random."""
    x = torch.randn(patients, genes, generator=generator, device=device)
    weight = torch.zeros(genes, device=device)
    weight[: genes // 20] = torch.randn(genes // 20, generator=generator, device=device) / (genes // 20) ** 0.5
    uniform = torch.rand(2, patients, generator=generator, device=device).clamp_min(1e-7)
    event = -uniform[0].log() / (x @ weight).exp()
    censored = -2 * uniform[1].log()
    return x, torch.minimum(event, censored), (event <= censored).float()


@torch.no_grad()
def concordance(hazard, time, observed, pairs, generator):
    a, b = torch.randint(len(time), (2, pairs), generator=generator, device=time.device)
    usable = (time[a] < time[b]) & (observed[a] > 0)
    return ((hazard[a] > hazard[b]) & usable).sum() / usable.sum()


def main():
    args = arguments(STEPS, FIXES)
    torch.manual_seed(9)
    patients, genes, width, dropout = (50000, 2048, 1024, 0.1) if args.gpu else (200, 40, 32, 0.0)
    generator = torch.Generator(args.device).manual_seed(9)
    x, time, observed = cohort(patients, genes, generator, args.device)
    if args.gpu:
        x = x.bfloat16()
    model = RiskNet(genes, width, dropout).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3, fused=args.gpu)
    clock = Clock(args.steps)
    for _ in range(args.steps):
        with torch.autocast(args.device.type, torch.bfloat16, enabled=args.gpu):
            hazard = model(x)
        loss = cox_loss(hazard, time, observed, args.fix)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        clock.tick()
    clock.report()
    index = concordance(hazard, time, observed, 10 * patients, generator)
    print(f"loss {loss.item():.6f} concordance {index.item():.4f}")


if __name__ == "__main__":
    main()
