"""Embeds a code base for semantic search with a wide bidirectional encoder.

Functions are packed into batches of 32 x 512 tokens and run through the first layers of a large bfloat16
encoder (width 8192); the mean of the last hidden states, normalised, is the vector of the function and goes
into the index, which stays on the device. A step is one batch.
"""

import torch
from common import Clock, arguments
from torch import nn
from torch.nn import functional as F

WALLS = ["at-the-roof"]
FIXES = {"compile": "torch.compile on every layer"}
TRUTH_STEPS = 45


class Layer(nn.Module):
    def __init__(self, width, ffn, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, ffn, bias=False)
        self.down = nn.Linear(ffn, width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).unbind(2)
        mixed = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Encoder(nn.Module):
    def __init__(self, vocabulary, width, ffn, heads, depth):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, ffn, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return F.normalize(self.norm(x).mean(dim=1, dtype=torch.float32), dim=-1)


def build(args, *sizes):
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(args.device):
        encoder = Encoder(*sizes)
    torch.set_default_dtype(torch.float32)
    if args.fix == "compile":
        for layer in encoder.layers:
            layer.compile(backend="inductor" if args.gpu else "eager")
    return encoder.eval()


def main():
    args = arguments(170, list(FIXES))
    torch.manual_seed(0)
    vocabulary, width, ffn, heads, depth, batch, length = (
        (32768, 8192, 32768, 64, 4, 32, 512) if args.gpu else (256, 64, 256, 4, 2, 4, 32)
    )
    encoder = build(args, vocabulary, width, ffn, heads, depth)
    functions = torch.randint(vocabulary, (8, batch, length), device=args.device)
    index = torch.empty(args.steps * batch, width, device=args.device)

    clock = Clock(args.steps)
    with torch.inference_mode():
        for step in range(args.steps):
            index[step * batch : (step + 1) * batch] = encoder(functions[step % len(functions)])
            clock.tick()
    print(f"{len(index)} vectors, similarity of the first two {(index[0] @ index[1]).item():.4f}")
    clock.report()


if __name__ == "__main__":
    main()
