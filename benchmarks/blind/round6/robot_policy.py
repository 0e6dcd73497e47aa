"""Clone the behaviour of a robot arm: a 400 M transformer policy on short windows, with AdamW written out by hand.

Domain: robotics (behaviour cloning), own transformer, bf16 autocast on fp32 weights, own optimizer class.
Why: 16 windows of 48 tokens are little work for 400 M weights, so the update is the larger half of the step. It is
    written as in the paper, one tensor operation a symbol: about 34 passes over 1.6 GB of fp32 where a fused update
    makes 7.
Trap: there is no `torch.optim` in the job; the update's kernels are plain multiplications and additions, like any
    pointwise chain, and each of them runs at the memory's full speed. The casts of autocast are there too, and smaller.
Fixes: fused-adamw (torch.optim.AdamW with fused=True: the same update).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Clock, arguments

WALLS = [["bandwidth", "unfused-optimizer"]]
FIXES = ["fused-adamw"]
TRUTH_STEPS = 360


class PaperAdamW(torch.optim.Optimizer):
    """AdamW, line by line."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["step"] += 1
                m, v, g = state["m"], state["v"], p.grad
                m.mul_(beta1).add_(g, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
                m_hat = m / (1 - beta1 ** state["step"])
                v_hat = v / (1 - beta2 ** state["step"])
                update = m_hat / (v_hat.sqrt() + group["eps"])
                update = update + group["weight_decay"] * p
                p.sub_(group["lr"] * update)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Policy(nn.Module):
    def __init__(self, features, width, depth, heads, actions):
        super().__init__()
        self.enter = nn.Linear(features, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.act = nn.Linear(width, actions)

    def forward(self, seen):
        return self.act(self.norm(self.blocks(self.enter(seen))))


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    features, width, depth, heads, windows, length = (1024, 2048, 8, 16, 16, 48) if args.gpu else (64, 256, 2, 4, 2, 16)
    actions = 16

    with torch.device(args.device):
        model = Policy(features, width, depth, heads, actions)
        seen = [torch.randn(windows, length, features) for _ in range(8)]
        done = [torch.randn(windows, length, actions) for _ in range(8)]
    if args.fix == "fused-adamw":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    else:
        optimizer = PaperAdamW(model.parameters())

    clock = Clock(args.steps)
    for step in range(args.steps):
        with torch.autocast(args.device.type, dtype=torch.bfloat16, enabled=args.gpu):
            actions_now = model(seen[step % 8])
            loss = F.smooth_l1_loss(actions_now.float(), done[step % 8])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1} loss {loss.item():.4f}", flush=True)
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
