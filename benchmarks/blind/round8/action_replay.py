"""Replays logged robot episodes through a vision-language-action policy, to compare its actions with the
recorded ones.

Four robots tick together: each gives a few vision and state tokens, the policy gives a chunk of actions.
Weights as they came from the training checkpoint; bf16 autocast keeps the forward quick.
"""

import contextlib

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["bandwidth", "dtype-casts"]]
FIXES = {"bf16_weights": "the weights are turned to bf16 once after loading; no autocast"}
TRUTH_STEPS = 600


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ActionPolicy(nn.Module):
    def __init__(self, inputs, width, depth, chunk, joints):
        super().__init__()
        self.embed = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(Block(width, max(1, width // 128)) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, chunk * joints)
        self.chunk, self.joints = chunk, joints

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, -1])).view(-1, self.chunk, self.joints)


@torch.no_grad()
def main():
    args = arguments(3500, list(FIXES))
    robots, tokens, inputs, width, depth = (4, 32, 1024, 8192, 4) if args.gpu else (2, 8, 32, 64, 2)
    torch.manual_seed(0)
    with args.device:
        model = ActionPolicy(inputs, width, depth, chunk=16, joints=8).eval()
        episode = torch.randn(32, robots, tokens, inputs)
        recorded = torch.randn(32, robots, 16, 8)
        errors = torch.zeros(args.steps)
    if args.fix == "bf16_weights":
        model, episode = model.to(torch.bfloat16), episode.to(torch.bfloat16)
        precision = contextlib.nullcontext
    else:

        def precision():
            return torch.autocast(args.device.type, torch.bfloat16)

    clock = Clock(args.steps)
    for tick in range(args.steps):
        at = tick % len(episode)
        with precision():
            actions = model(episode[at])
        errors[tick] = F.mse_loss(actions.float(), recorded[at])
        clock.tick()
    clock.report()
    print("mean squared error", float(errors.mean()))


if __name__ == "__main__":
    main()
