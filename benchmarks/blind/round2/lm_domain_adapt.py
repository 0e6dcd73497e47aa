"""Domain adaptation of a 1.2B language model on short texts (2 x 512 tokens a step) with an AdamW copied from a paper's
repository: textbook lines, one tensor at a time.

Why: per parameter the textbook reads and writes some 90 bytes in eight passes, a fused kernel 28; with so few tokens a step
the optimizer is the longest part of it. The tensors are large, so the launches do not matter.
Fix: fused: torch.optim.AdamW(fused=True).
"""

import math

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["bandwidth", "unfused-optimizer"]]
FIXES = ["fused"]
TRUTH_STEPS = 120


class PaperAdamW(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["t"], state["m"], state["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                state["t"] += 1
                m, v, t = state["m"], state["v"], state["t"]
                m.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                denominator = (v.sqrt() / math.sqrt(1 - beta2**t)).add_(group["eps"])
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.addcdiv_(m, denominator, value=-group["lr"] / (1 - beta1**t))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.a, self.b = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = self.qkv(self.a(x)).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, d))
        return x + self.down(F.gelu(self.up(self.b(x))))


class LM(nn.Module):
    def __init__(self, vocab, d, heads, layers):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.blocks = nn.Sequential(*(Block(d, heads) for _ in range(layers)))
        self.norm = nn.RMSNorm(d)
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, ids):
        return F.linear(self.norm(self.blocks(self.embed(ids))), self.embed.weight)


def main():
    args = arguments(550, FIXES)
    vocab, d, heads, layers, batch, length = (16384, 4096, 32, 6, 2, 512) if args.gpu else (64, 32, 2, 2, 2, 16)
    with torch.device(args.device):
        model = LM(vocab, d, heads, layers)
    if args.fix == "fused":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    else:
        optimizer = PaperAdamW(model.parameters())
    texts = torch.randint(0, vocab, (128, batch, length + 1), device=args.device)
    clock = Clock(args.steps)
    for step in range(args.steps):
        text = texts[step % 128]
        with torch.autocast(args.device.type, torch.bfloat16):
            logits = model(text[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0:
            print(f"step {step}, loss {loss.item():.3f}")
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
