"""Aligns a latent diffusion transformer with an aesthetic reward: the sampling chain is unrolled for a few
denoising steps and the reward's gradient flows back through it into low-rank adapters."""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn
from torch.utils.checkpoint import checkpoint

WALLS = [["compute", "recompute"]]
FIXES = {
    "keep": "activations of the whole chain are kept",
    "fused-adam": "the adapters' AdamW in one fused kernel",
}
TRUTH_STEPS = 36


class Adapted(nn.Module):
    """A frozen projection with a trainable low-rank update."""

    def __init__(self, inputs, outputs, rank=16):
        super().__init__()
        self.base = nn.Linear(inputs, outputs, bias=False).requires_grad_(False)
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = Adapted(width, width * 3)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, width * 4)
        self.down = nn.Linear(width * 4, width)
        for module in (self.norm1, self.norm2, self.out, self.up, self.down):
            module.requires_grad_(False)

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Denoiser(nn.Module):
    def __init__(self, latent, width, heads, depth, save_memory):
        super().__init__()
        self.save_memory = save_memory
        self.enter = nn.Linear(latent, width).requires_grad_(False)
        self.time = nn.Linear(1, width).requires_grad_(False)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.leave = nn.Linear(width, latent).requires_grad_(False)

    def forward(self, latents, level):
        x = self.enter(latents) + self.time(level)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.save_memory else block(x)
        return self.leave(x)


def sample(denoiser, latents, levels, save_memory):
    def advance(latents, level):
        return latents - denoiser(latents, level) * 0.2

    for level in levels:
        if save_memory:
            latents = checkpoint(advance, latents, level, use_reentrant=False)
        else:
            latents = advance(latents, level)
    return latents


def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(4)
    batch, tokens, width, heads, depth = (16, 1024, 1024, 16, 6) if args.gpu else (2, 16, 32, 2, 2)
    latent, chain = 16, 3
    kind = torch.bfloat16
    save_memory = args.fix != "keep"
    denoiser = Denoiser(latent, width, heads, depth, save_memory).to(args.device, kind)
    reward = nn.Sequential(nn.Linear(latent, 256), nn.GELU(), nn.Linear(256, 1)).to(args.device, kind)
    reward.requires_grad_(False)
    adapters = [p for p in denoiser.parameters() if p.requires_grad]
    fused = True if args.fix == "fused-adam" else None
    optimizer = torch.optim.AdamW(adapters, lr=1e-4, fused=fused)
    levels = torch.linspace(1, 0.2, chain, device=args.device, dtype=kind).view(chain, 1, 1, 1)

    clock = Clock(args.steps)
    for _ in range(args.steps):
        noise = torch.randn(batch, tokens, latent, device=args.device, dtype=kind)
        final = sample(denoiser, noise, levels, save_memory)
        loss = -reward(final).float().mean() + 1e-3 * final.float().square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
