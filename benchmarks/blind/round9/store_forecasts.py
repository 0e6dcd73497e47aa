"""Forecasts next week's demand of a bakery chain: every shop has its own small network, trained on its own
sales history, and one step moves all shops by one batch."""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["overhead", "launch-bound"]]
FIXES = {
    "stacked": "the shops' networks are stacked and trained with batched products",
    "tf32": "float32 matrix products may use TF32",
}
TRUTH_STEPS = 140


class ShopNet(nn.Module):
    def __init__(self, features, hidden, products):
        super().__init__()
        self.enter = nn.Linear(features, hidden)
        self.middle = nn.Linear(hidden, hidden)
        self.leave = nn.Linear(hidden, products)

    def forward(self, history):
        x = F.silu(self.enter(history))
        x = x + F.silu(self.middle(x))
        return F.softplus(self.leave(x))


class StackedShops(nn.Module):
    def __init__(self, shops):
        super().__init__()
        for name in ("enter", "middle", "leave"):
            layers = [getattr(shop, name) for shop in shops]
            weight = torch.stack([layer.weight.detach().t() for layer in layers]).contiguous()
            bias = torch.stack([layer.bias.detach() for layer in layers]).unsqueeze(1)
            self.register_parameter(f"{name}_weight", nn.Parameter(weight))
            self.register_parameter(f"{name}_bias", nn.Parameter(bias))

    def forward(self, history):
        x = F.silu(torch.baddbmm(self.enter_bias, history, self.enter_weight))
        x = x + F.silu(torch.baddbmm(self.middle_bias, x, self.middle_weight))
        return F.softplus(torch.baddbmm(self.leave_bias, x, self.leave_weight))


def poisson(rate, sold):
    return (rate - sold * torch.log(rate + 1e-6)).mean(dim=(-2, -1))


def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(14)
    count, days, features, hidden, products = (40, 512, 96, 256, 32) if args.gpu else (4, 16, 12, 16, 8)
    if args.fix == "tf32":
        torch.set_float32_matmul_precision("high")
    shops = [ShopNet(features, hidden, products).to(args.device) for _ in range(count)]
    history = torch.randn(4, count, days, features, device=args.device)
    sold = torch.poisson(torch.full((4, count, days, products), 3.0, device=args.device))

    stacked, optimizers = None, []
    if args.fix == "stacked":
        stacked = StackedShops(shops)
        optimizers.append(torch.optim.Adam(stacked.parameters(), lr=1e-3))
    else:
        optimizers.extend(torch.optim.Adam(shop.parameters(), lr=1e-3) for shop in shops)

    losses = torch.zeros(count, device=args.device)
    clock = Clock(args.steps)
    for step in range(args.steps):
        week = step % 4
        if stacked is not None:
            loss = poisson(stacked(history[week]), sold[week])
            optimizers[0].zero_grad(set_to_none=True)
            loss.sum().backward()
            optimizers[0].step()
            losses.lerp_(loss.detach(), 0.1)
        else:
            for number, (shop, optimizer) in enumerate(zip(shops, optimizers, strict=True)):
                loss = poisson(shop(history[week, number]), sold[week, number])
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                losses[number].lerp_(loss.detach(), 0.1)
        clock.tick()
    clock.report()
    print("worst shop", losses.argmax().item())


if __name__ == "__main__":
    main()
