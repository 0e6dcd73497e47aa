"""Portfolio rules that keep drawdowns small: a trend rule sets positions, the loss looks at whole equity curves."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn

FIXES = ("days_last", "days_last_at_loss")


def price_history(days, assets, seed=23):
    """Daily log returns with a market factor, momentum and changing volatility: [days, assets], as data vendors do."""
    rng = np.random.default_rng(seed)
    vol = 0.01 * np.exp(0.4 * np.sin(np.arange(days) / 90)[:, None] + 0.3 * rng.standard_normal(assets))
    market = 0.008 * rng.standard_normal((days, 1))
    r = market * rng.uniform(0.5, 1.5, size=assets) + vol * rng.standard_normal((days, assets))
    r[5:] += 0.04 * (r[:-5] + r[1:-4] + r[2:-3])
    return torch.from_numpy((r + 0.0002).astype(np.float32))


def signals(returns):
    """Trailing means over three horizons and the trailing volatility: [days, assets, 4]."""
    csum = torch.cat([torch.zeros(1, returns.shape[1]), returns.cumsum(0)])
    square = torch.cat([torch.zeros(1, returns.shape[1]), (returns**2).cumsum(0)])
    end = torch.arange(returns.shape[0])

    def trailing(total, width):
        begin = (end - width).clamp(min=0)
        return (total[end] - total[begin]) / width

    vol = (trailing(square, 21).clamp(min=1e-8)).sqrt()
    return torch.stack([trailing(csum, 5) / vol, trailing(csum, 21) / vol, trailing(csum, 63) / vol, 50 * vol], -1)


class Positions(nn.Module):
    """A linear rule: long where the weighted trends are up."""

    def __init__(self):
        super().__init__()
        self.rule = nn.Linear(4, 1)

    def forward(self, signal):
        return torch.tanh(self.rule(signal).squeeze(-1))


def smooth_cost(position, dim, cost=5e-4):
    change = position.diff(dim=dim).abs()
    return cost * change.mean()


def objective(position, returns, dim=0):
    """Mean growth against the mean and the worst fall below the last peak, curve by curve."""
    equity = torch.cumsum(position * returns, dim)
    peak = torch.cummax(equity, dim).values
    drawdown = peak - equity
    growth = equity.select(dim, -1)
    pain = drawdown.mean(dim) + 0.3 * drawdown.amax(dim)
    return (pain - growth).mean() + smooth_cost(position, dim)


class Backtest:
    """Random groups of assets over the whole history, one curve for each."""

    def __init__(self, returns, signal, fix, seed=4):
        self.returns, self.signal, self.fix = returns, signal, fix
        self.gen = torch.Generator().manual_seed(seed)
        if fix == "days_last":
            self.returns = returns.t().contiguous()
            self.signal = signal.transpose(0, 1).contiguous()

    def loss(self, model, count):
        if self.fix == "days_last":
            pick = torch.randperm(self.returns.shape[0], generator=self.gen)[:count]
            return objective(model(self.signal[pick]), self.returns[pick], dim=1)
        pick = torch.randperm(self.returns.shape[1], generator=self.gen)[:count]
        position, returns = model(self.signal[:, pick]), self.returns[:, pick]
        if self.fix == "days_last_at_loss":
            return objective(position.t().contiguous(), returns.t().contiguous(), dim=1)
        return objective(position, returns)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=50)
    ap.add_argument("--fix", choices=FIXES)
    ap.add_argument("--size", choices=("cpu", "small"), default="cpu")
    args = ap.parse_args()
    days, assets, count = (2000, 600, 256) if args.size == "cpu" else (200, 40, 16)

    torch.manual_seed(0)
    returns = price_history(days, assets)
    test = Backtest(returns, signals(returns), args.fix)
    model = Positions()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    times, losses = [], []
    for step in range(args.steps):
        start = time.perf_counter()
        loss = test.loss(model, count)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        times.append(time.perf_counter() - start)
        if step % 20 == 0:
            print(f"step {step} objective {losses[-1]:.5f}")
    print(f"mean objective {np.mean(losses):.6f}")
    print(f"mean step ms {1e3 * np.mean(times[args.steps // 3:]):.3f}")


if __name__ == "__main__":
    main()
