"""Trains a token world model of driving scenes: the next token of tokenised camera frames and controls.

Wide and shallow (4 layers of width 4096), two sequences of 512 tokens a step because scenes come in one by
one from the fleet replay, bfloat16 autocast over float32 weights. The optimizer is Lion, written after the
paper, and an exponential moving average of the weights is kept for the planner, which drives with the
averaged model.
"""

import torch
from common import Clock, arguments
from torch import nn
from torch.nn import functional as F

WALLS = ["unfused-optimizer"]
FIXES = {"compile": "torch.compile on the update of one parameter, so that it is one pass over memory"}
TRUTH_STEPS = 200


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class WorldModel(nn.Module):
    def __init__(self, vocabulary, width, heads, depth):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.Sequential(*[Layer(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        return self.head(self.norm(self.layers(self.tokens(ids))))


def update(weight, grad, momentum, average, lr, decay, beta1, beta2, keep):
    direction = momentum.mul(beta1).add_(grad, alpha=1 - beta1).sign_()
    weight.mul_(1 - lr * decay)
    weight.add_(direction, alpha=-lr)
    momentum.mul_(beta2).add_(grad, alpha=1 - beta2)
    average.mul_(keep).add_(weight, alpha=1 - keep)


class Lion:
    def __init__(self, parameters, lr=1e-5, decay=0.1, betas=(0.9, 0.99), keep=0.999, rule=update):
        self.parameters = list(parameters)
        self.momenta = [torch.zeros_like(p) for p in self.parameters]
        self.averages = [p.detach().clone() for p in self.parameters]
        self.settings = (lr, decay, *betas, keep)
        self.rule = rule

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self):
        for p, momentum, average in zip(self.parameters, self.momenta, self.averages, strict=True):
            self.rule(p.detach(), p.grad, momentum, average, *self.settings)


def main():
    args = arguments(900, list(FIXES))
    torch.manual_seed(0)
    vocabulary, width, heads, depth, batch, length = (
        (8192, 4096, 32, 4, 2, 512) if args.gpu else (64, 32, 4, 2, 2, 16)
    )
    with torch.device(args.device):
        model = WorldModel(vocabulary, width, heads, depth)
    rule = update
    if args.fix == "compile":
        rule = torch.compile(update, dynamic=False, backend="inductor" if args.gpu else "eager")
    optimizer = Lion(model.parameters(), rule=rule)
    scenes = torch.randint(vocabulary, (16, batch, length + 1), device=args.device)

    clock = Clock(args.steps)
    for step in range(args.steps):
        ids = scenes[step % len(scenes)]
        with torch.autocast(args.device.type, torch.bfloat16):
            logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.tick()
    print(f"loss {loss.item():.4f}")
    clock.report()


if __name__ == "__main__":
    main()
