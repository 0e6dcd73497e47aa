"""Prompt processing with a wide decoder.

Domain: language, serving (prefill), torch.compile, bf16.
Why: 16384 tokens through layers 8192 wide: each matmul is large, aligned and in bf16; attention is fused, norms, rotary
     embedding and gating are compiled into single kernels. More than nine tenths of the step is matmuls near the ceiling.
Trap: nothing to find. The answer token is read back every step and the norm weights are small float kernels; neither
      leaves the device idle for a noticeable time.
Fixes: none.
"""

import torch
from torch import nn
from torch.nn import functional as F

from common import Clock, arguments

WALLS = [["compute", "at-the-roof"]]
FIXES = []
TRUTH_STEPS = 130


def rotate(x, cos, sin):
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


class Layer(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.heads = width // 128
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, self.heads, 128).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        gate, value = self.up(self.second(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


class Decoder(nn.Module):
    def __init__(self, width, inner, layers, vocabulary):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, inner) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, cos, sin):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x[:, -1])).argmax(-1)


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    width, inner, layers, batch, length = (8192, 28672, 2, 8, 2048) if args.gpu else (256, 512, 2, 2, 64)
    vocabulary = 32_000 if args.gpu else 1000
    torch.set_default_dtype(torch.bfloat16)
    with args.device:
        model = Decoder(width, inner, layers, vocabulary).eval()
    angles = torch.arange(length, dtype=torch.float32)[:, None] * 10_000 ** (-torch.arange(64, dtype=torch.float32) / 64)
    cos, sin = angles.cos().to(args.device, torch.bfloat16), angles.sin().to(args.device, torch.bfloat16)
    model = torch.compile(model, dynamic=False)
    prompts = torch.randint(vocabulary, (16, batch, length), device=args.device)

    clock = Clock(args.steps)
    answers = 0
    with torch.no_grad():
        for step in range(args.steps):
            answers += len(model(prompts[step % 16], cos, sin).tolist())
            clock.tick()
    print("answers", answers, flush=True)
    clock.report()


if __name__ == "__main__":
    main()
