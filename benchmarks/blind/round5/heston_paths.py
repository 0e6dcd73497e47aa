"""Pricing Asian options by Monte Carlo under a stochastic volatility model.

Domain: finance, simulation (no training).
Why: one time step of 32 million paths is some twenty-five pointwise operators on 134 MB tensors, each of which reads and
     writes all of memory for one multiply or add. The values a time step must move are a quarter of a gigabyte a state;
     the operators move many times that.
Trap: no matmul anywhere, full utilisation, each kernel at the bandwidth ceiling: looks like a roof. The price is read with
      `.item()` at the end of every book, which costs nothing beside it.
Fixes: compile (`torch.compile` of one time step).
"""

import math

import torch
from torch import nn

from common import Clock, arguments

WALLS = [["bandwidth", "unfused-pointwise"]]
FIXES = ["compile"]
TRUTH_STEPS = 400


class Heston(nn.Module):
    def __init__(self, times, rate=0.02, kappa=1.5, theta=0.04, xi=0.3, rho=-0.7):
        super().__init__()
        self.times, self.dt = times, 1 / times
        self.rate, self.kappa, self.theta, self.xi, self.rho = rate, kappa, theta, xi, rho
        self.advance = self.time_step

    def time_step(self, log_price, variance, running):
        root_dt = math.sqrt(self.dt)
        first, second = torch.randn_like(log_price), torch.randn_like(log_price)
        linked = self.rho * first + math.sqrt(1 - self.rho**2) * second
        positive = variance.clamp(min=0)
        volatility = positive.sqrt()
        log_price = log_price + (self.rate - 0.5 * positive) * self.dt + volatility * first * root_dt
        variance = variance + self.kappa * (self.theta - positive) * self.dt + self.xi * volatility * linked * root_dt
        running = running + log_price.exp() / self.times
        return log_price, variance, running

    def forward(self, paths, strikes):
        log_price = torch.zeros(paths, device=strikes.device)
        variance = torch.full_like(log_price, self.theta)
        running = torch.zeros_like(log_price)
        for _ in range(self.times):
            log_price, variance, running = self.advance(log_price, variance, running)
        discount = math.exp(-self.rate)
        return torch.stack([(running - strike).clamp(min=0).mean() * discount for strike in strikes.unbind()])


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    paths, times = (32 << 20, 12) if args.gpu else (20_000, 4)
    model = Heston(times)
    if args.fix == "compile":
        model.advance = torch.compile(model.time_step)
    strikes = torch.tensor([0.9, 1.0, 1.1], device=args.device)

    clock = Clock(args.steps)
    total = 0.0
    with torch.no_grad():
        for _ in range(args.steps):
            prices = model(paths, strikes)
            total += prices[1].item()
            clock.tick()
    print(f"at the money {total / args.steps:.5f}", flush=True)
    clock.report()


if __name__ == "__main__":
    main()
