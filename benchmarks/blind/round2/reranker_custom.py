"""Serving a cross-encoder reranker (12 layers, 2048 wide, 16 x 512 tokens) whose linear layers go through a Triton
kernel of the team's own, "fused" linear + bias + squared ReLU.

Why: the kernel multiplies 32 x 32 tiles with two warps and no pipelining, an order of magnitude below what cuBLAS does with
the same shapes. The shapes are large and even, the dtype is bf16, the device is never idle.
Trap: 100 % busy, nearly all of it in matmuls, tensor cores in use: looks like the roof.
Fix: cublas: F.linear and a plain squared ReLU.
"""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["compute", "slow-kernels"]]
FIXES = ["cublas"]
TRUTH_STEPS = 60

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton is not None:

    @triton.jit
    def linear_kernel(x, w, bias, out, M, N, K, RELU2: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
        rows = tl.program_id(0) * BM + tl.arange(0, BM)
        columns = tl.program_id(1) * BN + tl.arange(0, BN)
        inner = tl.arange(0, BK)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for start in range(0, K, BK):
            a = tl.load(x + rows[:, None] * K + start + inner[None, :])
            b = tl.load(w + columns[None, :] * K + start + inner[:, None])
            total += tl.dot(a, b)
        total += tl.load(bias + columns)[None, :].to(tl.float32)
        if RELU2:
            total = tl.maximum(total, 0.0)
            total = total * total
        tl.store(out + rows[:, None] * N + columns[None, :], total.to(tl.bfloat16))


def custom_linear(x, weight, bias, relu2):
    flat = x.reshape(-1, x.shape[-1]).contiguous()
    (m, k), n = flat.shape, weight.shape[0]
    out = torch.empty(m, n, device=x.device, dtype=x.dtype)
    linear_kernel[(m // 32, n // 32)](flat, weight, bias, out, m, n, k, relu2, 32, 32, 32, num_warps=2, num_stages=1)
    return out.view(*x.shape[:-1], n)


def plain_linear(x, weight, bias, relu2):
    y = F.linear(x, weight, bias)
    return F.relu(y).square_() if relu2 else y


class Linear(nn.Linear):
    implementation = staticmethod(plain_linear)

    def forward(self, x, relu2=False):
        return Linear.implementation(x, self.weight, self.bias, relu2)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = Linear(width, 3 * width), Linear(width, width)
        self.up, self.down = Linear(width, 4 * width), Linear(4 * width, width)
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(self.up(self.n2(x), relu2=True))


@torch.no_grad()
def main():
    args = arguments(250, FIXES)
    width, heads, layers, batch, length = (2048, 32, 12, 16, 512) if args.gpu else (64, 2, 2, 2, 16)
    if args.gpu and args.fix != "cublas":
        Linear.implementation = staticmethod(custom_linear)
    torch.manual_seed(0)
    with torch.device(args.device):
        embed, score = nn.Embedding(30000, width).bfloat16(), nn.Linear(width, 1).bfloat16()
        body = nn.Sequential(*(Layer(width, heads) for _ in range(layers))).bfloat16().eval()
    pairs = torch.randint(0, 30000, (16, batch, length), device=args.device)
    clock = Clock(args.steps)
    best = []
    for request in range(args.steps):
        scores = score(body(embed(pairs[request % 16]))[:, 0]).squeeze(-1)
        best.append(scores.argmax())
        clock.tick()
    print("best of the last", best[-1].item())
    clock.report()


if __name__ == "__main__":
    main()
