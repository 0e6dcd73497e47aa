"""Cell fates between two days of a culture: a drift network, fitted by optimal transport between the snapshots."""
import argparse
import time

import torch
from torch import nn

FIXES = ("scaling", "rescaled")


def snapshots(days, cells, genes, gen):
    """Cells leave one progenitor state on three branches; every day is measured on other cells."""
    branch = torch.randn(3, genes, generator=gen)
    out = []
    for day in range(days):
        kind = torch.randint(3, (cells,), generator=gen)
        reach = (day + torch.rand(cells, 1, generator=gen)) / days
        out.append(reach * branch[kind] + 0.3 * torch.randn(cells, genes, generator=gen))
    return out


def log_sinkhorn(cost, eps, rounds):
    """Entropic transport plan between uniform weights, in the log domain so that nothing can under- or overflow."""
    n, m = cost.shape
    log_a = torch.full((n,), 1 / n).log()
    log_b = torch.full((m,), 1 / m).log()
    f, g = torch.zeros(n), torch.zeros(m)
    for _ in range(rounds):
        f = eps * (log_a - torch.logsumexp((g[None, :] - cost) / eps, dim=1))
        g = eps * (log_b - torch.logsumexp((f[:, None] - cost) / eps, dim=0))
    return torch.exp((f[:, None] + g[None, :] - cost) / eps)


def scaling_sinkhorn(cost, eps, rounds):
    """The same iteration on exp(-cost / eps), which eps of a twentieth of the median cost keeps far from underflow."""
    n, m = cost.shape
    kernel = torch.exp(-cost / eps)
    v = torch.ones(m)
    for _ in range(rounds):
        u = (1 / n) / (kernel @ v)
        v = (1 / m) / (u @ kernel)
    return u[:, None] * kernel * v[None, :]


def rescaled_sinkhorn(cost, eps, rounds):
    """Log domain, with cost / eps worked out once."""
    n, m = cost.shape
    scaled = -cost / eps
    log_a, log_b = torch.full((n,), 1 / n).log(), torch.full((m,), 1 / m).log()
    f, g = torch.zeros(n), torch.zeros(m)
    for _ in range(rounds):
        f = log_a - torch.logsumexp(scaled + g[None, :], dim=1)
        g = log_b - torch.logsumexp(scaled + f[:, None], dim=0)
    return torch.exp(scaled + f[:, None] + g[None, :])


SOLVERS = {None: log_sinkhorn, "scaling": scaling_sinkhorn, "rescaled": rescaled_sinkhorn}


class Drift(nn.Module):
    """Where a cell goes within a day, by a few Euler steps."""

    def __init__(self, genes, hidden, substeps=3):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(genes + 1, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(),
                                 nn.Linear(hidden, genes))
        self.substeps = substeps

    def forward(self, x, day):
        for i in range(self.substeps):
            clock = x.new_full((len(x), 1), day + i / self.substeps)
            x = x + self.net(torch.cat([x, clock], 1)) / self.substeps
        return x


def squared_distance(a, b):
    return (a.square().sum(1)[:, None] + b.square().sum(1)[None, :] - 2 * a @ b.t()).clamp(min=0)


def transport_loss(moved, seen, solver, rounds):
    cost = squared_distance(moved, seen)
    with torch.no_grad():                        # the plan is optimal: its own gradient vanishes
        plan = solver(cost, cost.median().item() / 20, rounds)
    return (plan * cost).sum()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--fix", choices=FIXES)
    ap.add_argument("--size", choices=("cpu", "small"), default="cpu")
    ap.add_argument("--rounds", type=int, default=40)
    args = ap.parse_args()
    cells, genes, batch = (2000, 50, 384) if args.size == "cpu" else (200, 10, 48)
    torch.manual_seed(5)
    gen = torch.Generator().manual_seed(5)
    days = snapshots(5, cells, genes, gen)
    model = Drift(genes, 64)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    clock, sums = [], torch.zeros(len(days) - 1)
    for step in range(args.steps):
        clock.append(time.perf_counter())
        day = step % (len(days) - 1)
        source = days[day][torch.randint(cells, (batch,), generator=gen)]
        seen = days[day + 1][torch.randint(cells, (batch,), generator=gen)]
        loss = transport_loss(model(source, day), seen, SOLVERS[args.fix], args.rounds)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        sums[day] += loss.detach()
        if step % 20 == 19:
            print(f"step {step + 1} loss by day", " ".join(f"{s:.3f}" for s in (sums / (step / 4 + 1)).tolist()))
    clock.append(time.perf_counter())
    first = args.steps // 3
    print(f"mean loss {sums.sum().item() / args.steps:.6f}")
    print(f"mean step ms {1e3 * (clock[-1] - clock[first]) / (args.steps - first):.3f}")


if __name__ == "__main__":
    main()
