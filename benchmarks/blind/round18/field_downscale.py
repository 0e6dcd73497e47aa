"""Statistical downscaling of surface fields with a windowed attention trunk in stages; activations are checkpointed."""
import argparse
import time
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

remat = partial(checkpoint, use_reentrant=False)


class WindowAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        w, n, c = x.shape
        q, k, v = self.qkv(x).view(w, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(w, n, c))


class Block(nn.Module):
    def __init__(self, dim, heads, ratio):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, ratio * dim), nn.GELU(), nn.Linear(ratio * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Stage(nn.Module):
    """Some blocks on windows; every other call shifts the grid by half a window."""

    def __init__(self, dim, heads, ratio, depth, window, shift, use_checkpoint):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim, heads, ratio) for _ in range(depth))
        self.window, self.shift, self.use_checkpoint = window, shift, use_checkpoint

    def forward(self, x):
        b, h, w, c = x.shape
        k = self.window
        x = x.roll((-self.shift, -self.shift), (1, 2))
        x = x.view(b, h // k, k, w // k, k, c).transpose(2, 3).reshape(-1, k * k, c)
        for block in self.blocks:
            x = remat(block, x) if self.use_checkpoint else block(x)
        x = x.view(b, h // k, w // k, k, k, c).transpose(2, 3).reshape(b, h, w, c)
        return x.roll((self.shift, self.shift), (1, 2))


class Downscaler(nn.Module):
    def __init__(self, fields, dim, heads, stages, depth, window, factor, checkpoint_stages, checkpoint_blocks):
        super().__init__()
        self.enter = nn.Linear(fields, dim)
        self.stages = nn.ModuleList(Stage(dim, heads, 4, depth, window, window // 2 * (i % 2), checkpoint_blocks)
                                    for i in range(stages))
        self.leave = nn.Linear(dim, factor * factor)
        self.factor, self.checkpoint_stages = factor, checkpoint_stages

    def forward(self, x):
        h = self.enter(x)
        for stage in self.stages:
            h = remat(stage, h) if self.checkpoint_stages and self.training else stage(h)
        return F.pixel_shuffle(self.leave(h).permute(0, 3, 1, 2), self.factor)


def fields(batch, channels, side, factor, generator):
    """Smooth fine fields; the coarse inputs are their block means, plus lagged and noisy companions."""
    spec = torch.randn(batch, side * factor, side * factor, generator=generator, dtype=torch.complex64)
    k = torch.fft.fftfreq(side * factor) * side * factor
    spec = spec / (1 + k[:, None] ** 2 + k[None, :] ** 2) ** 1.3
    fine = torch.fft.ifft2(spec).real
    fine = fine / fine.std()
    coarse = F.avg_pool2d(fine[:, None], factor)
    more = [coarse.roll(s, -1) + 0.1 * torch.randn(coarse.shape, generator=generator) for s in range(1, channels)]
    return torch.cat([coarse, *more], 1).permute(0, 2, 3, 1).contiguous(), fine[:, None]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="plain or stages_only")
    ap.add_argument("--device", default="cpu")
    o = ap.parse_args()
    gpu = o.device == "cuda"
    side, batch, dim, heads, stages, depth = (128, 8, 384, 12, 6, 4) if gpu else (32, 1, 96, 4, 2, 2)
    torch.manual_seed(8)
    g = torch.Generator().manual_seed(1)
    bank = [tuple(v.to(o.device) for v in fields(batch, 5, side, 4, g)) for _ in range(16)]
    net = Downscaler(5, dim, heads, stages, depth, 8, 4, checkpoint_stages=o.fix != "plain",
                     checkpoint_blocks=o.fix not in ("plain", "stages_only")).to(o.device)
    opt = torch.optim.AdamW(net.parameters(), lr=5e-4, fused=True)
    losses = []
    for step in range(o.steps):
        if step == o.steps // 3:
            torch.cuda.synchronize() if gpu else None
            t0 = time.perf_counter()
        coarse, fine = bank[step % len(bank)]
        base = F.interpolate(coarse[..., :1].permute(0, 3, 1, 2), scale_factor=4, mode="bilinear", align_corners=False)
        loss = F.l1_loss(base + net(coarse), fine)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    torch.cuda.synchronize() if gpu else None
    spent = time.perf_counter() - t0
    print(f"l1 first {losses[0].item():.6f} last {torch.stack(losses[-16:]).mean().item():.6f}")
    print(f"mean step ms {1e3 * spent / (o.steps - o.steps // 3):.3f}")


if __name__ == "__main__":
    main()
