"""Latent-diffusion sampling for music clips: a 3.6 B DiT over 128 latent frames, Euler sampler with guidance.

Domain: audio generation (inference). One step is one denoising step (conditional and unconditional half together).
Why: the checkpoint is kept in float32 and the denoiser runs under autocast, so every call casts every weight
  float32 -> bfloat16 again (6 bytes moved for each weight before the matmul reads 2); with 256 tokens the casts
  take longer than the matmuls they feed. The autocast cache does not help: it is emptied whenever the block ends.
Trap: the end of each clip (every 25th step) decodes the latents and copies them to the host, a real but rare sync;
  the matmuls are small for this card and look slow; attention and modulation are many short kernels.
Fixes: bf16_weights: the module is converted to bfloat16 once;
  outer_autocast: one autocast block around the whole sampler, so that its cache keeps the cast weights.
"""

import contextlib

import torch
import torch.nn.functional as F
from torch import nn

from common import Clock, arguments

WALLS = [["bandwidth", "dtype-casts"]]
FIXES = ["bf16_weights", "outer_autocast"]
TRUTH_STEPS = 600
CLIP_STEPS = 25


def modulate(x, shift, scale):
    return torch.addcmul(shift, x, 1 + scale)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.modulation = nn.Linear(width, 6 * width)

    def forward(self, x, cond):
        b, t, c = x.shape
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(cond).unsqueeze(1).chunk(6, dim=-1)
        q, k, v = self.qkv(modulate(self.norm1(x), shift1, scale1)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c)
        x = torch.addcmul(x, gate1, self.proj(h))
        h = self.down(F.gelu(self.up(modulate(self.norm2(x), shift2, scale2)), approximate="tanh"))
        return torch.addcmul(x, gate2, h)


class MusicDiT(nn.Module):
    def __init__(self, channels, width, depth, heads, frames, prompts):
        super().__init__()
        self.inp = nn.Linear(channels, width)
        self.position = nn.Parameter(torch.randn(1, frames, width) * 0.02)
        self.prompt = nn.Embedding(prompts + 1, width)  # the last row is the empty prompt
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, channels)
        self.register_buffer("freqs", torch.exp(torch.linspace(0, -9.2, 128)))

    def forward(self, x, sigma, prompt):
        angle = sigma.log()[:, None] * 250 * self.freqs
        cond = F.silu(self.time(torch.cat([angle.cos(), angle.sin()], dim=-1)) + self.prompt(prompt))
        x = self.inp(x) + self.position
        for block in self.blocks:
            x = block(x, cond)
        return self.out(self.norm(x))


class Decoder(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        layers, c = [nn.Conv1d(channels, width, 7, padding=3)], width
        for _ in range(4):
            layers += [nn.ELU(), nn.ConvTranspose1d(c, c // 2, 8, stride=4, padding=2)]
            c //= 2
        self.net = nn.Sequential(*layers, nn.ELU(), nn.Conv1d(c, 2, 7, padding=3), nn.Tanh())

    def forward(self, z):
        return self.net(z.transpose(1, 2))


def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(0)
    channels, width, depth, heads, frames = (64, 4096, 12, 32, 128) if args.gpu else (8, 64, 2, 4, 16)
    with torch.device(args.device):
        model = MusicDiT(channels, width, depth, heads, frames, prompts=100).eval()
        decoder = Decoder(channels, 256 if args.gpu else 32).eval()
    if args.fix == "bf16_weights":
        model.bfloat16()

    sigmas = torch.logspace(1.9, -2, CLIP_STEPS + 1, device=args.device)
    guidance, peak, clips = 4.0, 0.0, 0
    clock = Clock(args.steps, period=CLIP_STEPS if args.steps > 3 * CLIP_STEPS else 1)

    @torch.no_grad()
    def denoise(x, sigma, prompt):
        with torch.autocast(args.device.type, dtype=torch.bfloat16):
            both = torch.cat([x, x]) / (sigma**2 + 1).sqrt()
            empty = torch.full_like(prompt, 100)
            eps = model(both, sigma.expand(both.shape[0]), torch.cat([prompt, empty])).float()
        cond, uncond = eps.chunk(2)
        return x - sigma * (uncond + guidance * (cond - uncond))

    outer = contextlib.nullcontext()
    if args.fix == "outer_autocast":
        outer = torch.autocast(args.device.type, dtype=torch.bfloat16)
    with outer:
        for step in range(args.steps):
            i = step % CLIP_STEPS
            if i == 0:
                x = torch.randn(1, frames, channels, device=args.device) * sigmas[0]
                prompt = torch.full((1,), clips % 100, device=args.device)
            slope = (x - denoise(x, sigmas[i], prompt)) / sigmas[i]
            x = x + slope * (sigmas[i + 1] - sigmas[i])
            if i == CLIP_STEPS - 1:
                with torch.no_grad():
                    wave = decoder(x).float().cpu()
                peak, clips = max(peak, wave.abs().max().item()), clips + 1
            clock.tick()
    print(f"clips {clips} peak {peak:.3f}")
    clock.report()


if __name__ == "__main__":
    main()
