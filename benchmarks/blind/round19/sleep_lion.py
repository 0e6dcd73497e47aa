"""Sleep staging from overnight EEG: a deep, narrow convolution-and-attention network trained with Lion."""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

FIXES = ["foreach", "bf16"]
STEPS = 45


class Lion(torch.optim.Optimizer):
    """Evolved sign momentum, with decoupled weight decay."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.01, foreach=False):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))
        self.foreach = foreach

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            for p in params:
                if not self.state[p]:
                    self.state[p]["momentum"] = torch.zeros_like(p)
            if self.foreach:
                self.update_together(params, [p.grad for p in params], [self.state[p]["momentum"] for p in params], group)
            else:
                for p in params:
                    self.update(p, p.grad, self.state[p]["momentum"], group)

    @staticmethod
    def update(p, grad, momentum, group):
        lr, (beta1, beta2) = group["lr"], group["betas"]
        p.mul_(1 - lr * group["weight_decay"])
        direction = momentum.clone().mul_(beta1).add(grad, alpha=1 - beta1).sign_()
        p.add_(direction, alpha=-lr)
        momentum.mul_(beta2).add_(grad, alpha=1 - beta2)

    @staticmethod
    def update_together(params, grads, momenta, group):
        lr, (beta1, beta2) = group["lr"], group["betas"]
        torch._foreach_mul_(params, 1 - lr * group["weight_decay"])
        direction = torch._foreach_mul(momenta, beta1)
        torch._foreach_add_(direction, grads, alpha=1 - beta1)
        torch._foreach_sign_(direction)
        torch._foreach_add_(params, direction, alpha=-lr)
        torch._foreach_mul_(momenta, beta2)
        torch._foreach_add_(momenta, grads, alpha=1 - beta2)


class Block(nn.Module):
    """Half a feed-forward, attention, a depthwise convolution, half a feed-forward."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.feed1 = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
        self.feed2 = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.depthwise = nn.Conv1d(width, width, 15, padding=7, groups=width)
        self.pointwise = nn.Linear(width, width)

    def attend(self, x):
        b, t, width = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, width))

    def forward(self, x):
        x = x + 0.5 * self.feed1(self.norms[0](x))
        x = x + self.attend(self.norms[1](x))
        x = x + self.pointwise(F.silu(self.depthwise(self.norms[2](x).transpose(1, 2)).transpose(1, 2)))
        x = x + 0.5 * self.feed2(self.norms[3](x))
        return self.norms[4](x)


class Stager(nn.Module):
    def __init__(self, channels, width, heads, depth, stages=5):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(channels, width, 50, 25), nn.GELU(), nn.Conv1d(width, width, 4, 4))
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.stage = nn.Linear(width, stages)

    def forward(self, x):
        return self.stage(self.blocks(self.front(x).transpose(1, 2)).mean(1))


def recordings(count, channels, samples, generator):
    """Noise with a rhythm whose frequency goes with the stage."""
    stage = torch.randint(5, (count,), generator=generator)
    t = torch.arange(samples) / 100
    frequency = torch.tensor([10.0, 6.0, 13.0, 1.5, 20.0])[stage]
    wave = torch.sin(6.2832 * frequency[:, None] * t + torch.rand(count, 1, generator=generator) * 6.28)
    return wave[:, None] + torch.randn(count, channels, samples, generator=generator), stage


def main():
    args = arguments(STEPS, FIXES)
    torch.manual_seed(8)
    count, channels, samples, batch, width, heads, depth = (512, 6, 3000, 32, 144, 4, 24) if args.gpu else (16, 2, 1000, 4, 16, 2, 2)
    generator = torch.Generator().manual_seed(8)
    signals, stages = (t.to(args.device) for t in recordings(count, channels, samples, generator))
    model = Stager(channels, width, heads, depth).to(args.device)
    optimizer = Lion(model.parameters(), lr=1e-4, foreach=args.fix == "foreach")
    draws = torch.Generator(args.device).manual_seed(8)
    clock = Clock(args.steps)
    for _ in range(args.steps):
        pick = torch.randint(count, (batch,), generator=draws, device=args.device)
        with torch.autocast(args.device.type, torch.bfloat16, enabled=args.fix == "bf16"):
            scores = model(signals[pick])
        loss = F.cross_entropy(scores.float(), stages[pick], label_smoothing=0.05)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        clock.tick()
    clock.report()
    print(f"loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
