"""Embedding extraction with a large vision transformer (bf16 inference)."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, d, heads, ff):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d)
        self.fc1, self.fc2 = nn.Linear(d, ff), nn.Linear(ff, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.fc2(F.gelu(self.fc1(self.n2(x))))


class VisionEncoder(nn.Module):
    def __init__(self, side, patch, d, heads, ff, layers):
        super().__init__()
        self.patch = nn.Conv2d(3, d, patch, patch)
        self.pos = nn.Parameter(torch.randn((side // patch) ** 2, d) * 0.02)
        self.blocks = nn.ModuleList(Block(d, heads, ff) for _ in range(layers))
        self.norm = nn.RMSNorm(d)

    def forward(self, img):
        x = self.patch(img).flatten(2).transpose(1, 2) + self.pos
        for blk in self.blocks:
            x = blk(x)
        return F.normalize(self.norm(x).mean(1).float(), dim=-1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=25)
    p.add_argument("--fix", default="")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--cpu", action="store_true")
    a = p.parse_args()
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(0)
    batch, side, patch, d, heads, ff, layers = (2, 32, 8, 32, 2, 64, 2) if a.tiny else (32, 448, 14, 3200, 25, 12800, 10)
    with dev:
        torch.set_default_dtype(torch.bfloat16)
        net = VisionEncoder(side, patch, d, heads, ff, layers).eval()
        torch.set_default_dtype(torch.float32)
    images = torch.randint(0, 256, (4 * batch, 3, side, side), dtype=torch.uint8, device=dev)
    out = torch.empty(a.steps * batch, d, device=dev)
    n = min(a.steps, 12)
    with torch.inference_mode():
        for step in range(a.steps):
            if step == a.steps - n:
                if dev.type == "cuda":
                    torch.cuda.synchronize()
                t0 = time.perf_counter()
            x = images[(step % 4) * batch:(step % 4 + 1) * batch].to(torch.bfloat16).div_(127.5).sub_(1)
            out[step * batch:(step + 1) * batch] = net(x)
    if dev.type == "cuda":
        torch.cuda.synchronize()
    dt = time.perf_counter() - t0
    print(f"embedded {len(out)} checksum {out.mean().item():.6f}")
    print(f"MEAN_STEP_MS {dt / n * 1e3:.3f}")


if __name__ == "__main__":
    main()
