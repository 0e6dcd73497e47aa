"""Speech encoder fine-tuning on utterances of every length (4 to 16 s): 12 layers of width 512 with convolution modules, two
micro-batches of 16 a step, bf16 autocast, and `torch.cuda.empty_cache()` after each "because of fragmentation".

Why: each micro-batch gives all cached memory back to the driver and asks for it again, block by block, with cudaFree and
cudaMalloc, which also wait for the device.
Trap: lengths vary, so step times vary anyway.
Fix: no_empty_cache.
"""

import random

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["overhead", "allocator"]]
FIXES = ["no_empty_cache"]
TRUTH_STEPS = 36


class ConvModule(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.wide = nn.LayerNorm(d), nn.Linear(d, 2 * d)
        self.mix, self.out = nn.Conv1d(d, d, 3, padding=1), nn.Linear(d, d)

    def forward(self, x):
        y = F.glu(self.wide(self.norm(x)), -1).transpose(1, 2)
        return x + self.out(F.silu(self.mix(y)).transpose(1, 2))


class ConformerLayer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2, self.n3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.ff1 = nn.Sequential(nn.Linear(d, 4 * d), nn.SiLU(), nn.Linear(4 * d, d))
        self.ff2 = nn.Sequential(nn.Linear(d, 4 * d), nn.SiLU(), nn.Linear(4 * d, d))
        self.qkv, self.proj, self.conv = nn.Linear(d, 3 * d), nn.Linear(d, d), ConvModule(d)

    def forward(self, x):
        b, t, d = x.shape
        x = x + 0.5 * self.ff1(self.n1(x))
        q, k, v = self.qkv(self.n2(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + 0.5 * self.ff2(self.n3(self.conv(x)))


class Encoder(nn.Module):
    def __init__(self, d, heads, layers, tokens):
        super().__init__()
        self.sub = nn.Conv1d(80, d, 3, 2, 1)
        self.layers = nn.Sequential(*(ConformerLayer(d, heads) for _ in range(layers)))
        self.head = nn.Linear(d, tokens)

    def forward(self, mel):
        return self.head(self.layers(F.gelu(self.sub(mel)).transpose(1, 2)))


def batches(micro, low, high, device):
    rng = random.Random(5)
    while True:
        frames = rng.randrange(low, high, 8)
        yield (torch.randn(micro, 80, frames, device=device),
               torch.randint(0, 512, (micro, frames // 2), device=device))


def main():
    args = arguments(150, FIXES)
    d, heads, layers, micro, low, high = (512, 8, 12, 16, 400, 1600) if args.gpu else (32, 2, 2, 2, 32, 64)
    model = Encoder(d, heads, layers, 512).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    source = batches(micro, low, high, args.device)
    clock = Clock(args.steps)
    for step in range(args.steps):
        for _ in range(2):
            mel, target = next(source)
            with torch.autocast(args.device.type, torch.bfloat16):
                logits = model(mel)
            loss = F.cross_entropy(logits.float().flatten(0, 1), target.flatten()) / 2
            loss.backward()
            shown = loss.detach()
            del mel, target, logits, loss
            if args.fix != "no_empty_cache" and args.gpu:
                torch.cuda.empty_cache()
        optimizer.step()
        optimizer.zero_grad()
        clock.tick()
    print("loss", 2 * shown.item())
    clock.report()


if __name__ == "__main__":
    main()
