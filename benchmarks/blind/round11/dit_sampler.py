"""Class-conditional DiT: DDIM sampling with classifier-free guidance. One step = one denoising step."""
import argparse
import math
import time

import torch
from torch import nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--fix", default="", help="sdpa, bf16_softmax")
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--cpu", action="store_true")
args = parser.parse_args()
FIX = set(filter(None, args.fix.split(",")))


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        if "sdpa" in FIX:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            att = q @ k.transpose(-2, -1) * self.scale
            if "bf16_softmax" in FIX:
                att = att.softmax(-1)
            else:
                att = att.float().softmax(-1).to(v.dtype)      # softmax in half looked unsafe
            y = att @ v
        return self.proj(y.transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1 = nn.LayerNorm(dim, elementwise_affine=False)
        self.n2 = nn.LayerNorm(dim, elementwise_affine=False)
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim))
        self.ada = nn.Linear(dim, 6 * dim)

    def forward(self, x, c):
        s1, b1, g1, s2, b2, g2 = self.ada(F.silu(c))[:, None].chunk(6, -1)
        x = x + g1 * self.attn(self.n1(x) * (1 + s1) + b1)
        return x + g2 * self.mlp(self.n2(x) * (1 + s2) + b2)


class DiT(nn.Module):
    def __init__(self, side, dim, depth, heads, patch=2, ch=4, classes=1000):
        super().__init__()
        self.patch, self.side, self.dim = patch, side, dim
        self.embed = nn.Conv2d(ch, dim, patch, patch)
        self.pos = nn.Parameter(torch.randn(1, (side // patch) ** 2, dim) * 0.02)
        self.label = nn.Embedding(classes + 1, dim)
        self.time = nn.Sequential(nn.Linear(256, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.out = nn.Linear(dim, patch * patch * ch)

    def forward(self, x, t, y):
        f = torch.exp(-math.log(10000) * torch.arange(128, device=x.device) / 128) * t[:, None]
        c = self.time(torch.cat([f.cos(), f.sin()], -1).to(x.dtype)) + self.label(y)
        h = self.embed(x).flatten(2).transpose(1, 2) + self.pos
        for blk in self.blocks:
            h = blk(h, c)
        g, p = self.side // self.patch, self.patch
        h = self.out(h).view(-1, g, g, p, p, 4)
        return h.permute(0, 5, 1, 3, 2, 4).reshape(-1, 4, self.side, self.side)


@torch.inference_mode()
def main():
    dev = torch.device("cpu" if args.cpu else "cuda")
    torch.manual_seed(0)
    bs, side, dim, depth, heads = (1, 8, 32, 2, 2) if args.tiny else (4, 128, 1024, 12, 16)
    with torch.device(dev):
        net = DiT(side, dim, depth, heads).to(torch.bfloat16).eval()
    acp = torch.cos(torch.linspace(0, 1.5, 51, device=dev)) ** 2
    window = min(args.steps, max(3, args.steps // 3))
    done, t0 = 0, 0.0
    while done < args.steps:
        x = torch.randn(bs, 4, side, side, device=dev)
        y = torch.cat([torch.randint(0, 1000, (bs,), device=dev), torch.full((bs,), 1000, device=dev)])
        for i in range(50, 0, -1):
            if done == args.steps - window:
                if dev.type == "cuda":
                    torch.cuda.synchronize()
                t0 = time.perf_counter()
            if done == args.steps:
                break
            t = torch.full((2 * bs,), i * 20.0, device=dev)
            cond, uncond = net(torch.cat([x, x]).to(torch.bfloat16), t, y).float().chunk(2)
            eps = uncond + 4.0 * (cond - uncond)
            a, an = acp[i], acp[i - 1]
            x0 = ((x - (1 - a).sqrt() * eps) / a.sqrt()).clamp(-3, 3)
            x = an.sqrt() * x0 + (1 - an).sqrt() * eps
            done += 1
    if dev.type == "cuda":
        torch.cuda.synchronize()
    print(f"latent std {x.std().item():.3f}")
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / window * 1e3:.3f}")


main()
