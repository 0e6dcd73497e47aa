"""Batched decoding with sliding-window attention: 32 streams, a window of 4096 tokens, 16 layers of width 2048, bf16; the
cache of a layer is rolled with `torch.cat([cache[:, :, 1:], new], 2)`.

Why: to add one token the whole window is copied, 1 GB a layer and token: twice the bytes that attention then reads.
Trap: decode is expected to stand at the memory roof, and this one does move memory at full speed.
Fix: ring: a ring buffer, the new token written in place (order does not matter once positions are rotated in).
"""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["bandwidth", "layout-copies"]]
FIXES = ["ring"]
TRUTH_STEPS = 360


class Rotary(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("rate", 10000.0 ** (-torch.arange(0, dim, 2) / dim))

    def forward(self, place):
        angle = place * self.rate
        return torch.cat([angle.cos(), angle.cos()]).bfloat16(), torch.cat([angle.sin(), angle.sin()]).bfloat16()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Layer(nn.Module):
    def __init__(self, width, heads, window, streams, ring):
        super().__init__()
        self.heads, self.window, self.ring = heads, window, ring
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        shape = (streams, heads, window, width // heads)
        self.k, self.v = torch.randn(shape, dtype=torch.bfloat16), torch.randn(shape, dtype=torch.bfloat16)

    def remember(self, k, v, place):
        if self.ring:
            slot = place % self.window
            self.k[:, :, slot : slot + 1] = k
            self.v[:, :, slot : slot + 1] = v
        else:
            self.k = torch.cat([self.k[:, :, 1:], k], 2)
            self.v = torch.cat([self.v[:, :, 1:], v], 2)
        return self.k, self.v

    def forward(self, x, place, cos, sin):
        b, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, 3, self.heads, 1, -1).unbind(1)
        k, v = self.remember(rotate(k, cos, sin), v, place)
        x = x + self.proj(F.scaled_dot_product_attention(rotate(q, cos, sin), k, v).reshape(b, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


@torch.inference_mode()
def main():
    args = arguments(1900, FIXES)
    width, heads, layers, window, streams, vocab = (2048, 16, 16, 4096, 32, 32000) if args.gpu else (64, 4, 2, 32, 2, 100)
    with torch.device(args.device):
        embed = nn.Embedding(vocab, width).bfloat16()
        body = nn.ModuleList(Layer(width, heads, window, streams, args.fix == "ring") for _ in range(layers)).bfloat16()
        rotary = Rotary(width // heads)
        token = torch.zeros(streams, dtype=torch.long)
    clock = Clock(args.steps)
    out = []
    for place in range(args.steps):
        x = embed(token)
        cos, sin = rotary(window + place)
        for layer in body:
            x = layer(x, place, cos, sin)
        token = F.linear(x, embed.weight).argmax(-1)
        out.append(token)
        if len(out) == 64:
            torch.stack(out, 1).tolist()
            out.clear()
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
