"""Document embeddings from a large language model: four layers of a 70B-like shape (8192 wide, 28672 in the MLP), 8 x 1024
tokens a request, bf16, eager; every answer goes back with `.cpu()` and each tenth request is logged.

Why: some 97 % of the time is in matmuls large enough to run at what the device can do; the read-back and the log line are
microseconds of a hundred milliseconds. The compute roof.
Trap: a sync every step, Python logging, no compile, no CUDA graph: all the usual suspects, none guilty.
No fix; the proof is the FLOP/s printed at the end.
"""

import logging

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["compute", "at-the-roof"]]
FIXES = []
TRUTH_STEPS = 80
log = logging.getLogger("server")


class Layer(nn.Module):
    def __init__(self, width, ffn, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.dim = heads, kv_heads, width // heads
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.dim, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.gate_up, self.down = nn.Linear(width, 2 * ffn, bias=False), nn.Linear(ffn, width, bias=False)
        self.n1, self.n2 = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x):
        b, t, _ = x.shape
        qkv = self.qkv(self.n1(x)).view(b, t, -1, self.dim).transpose(1, 2)
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, -1))
        gate, up = self.gate_up(self.n2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate).mul_(up))


class Embedder(nn.Module):
    def __init__(self, layers, width, ffn, heads, kv_heads, vocab):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(Layer(width, ffn, heads, kv_heads) for _ in range(layers))

    def forward(self, ids):
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return F.normalize(x[:, -1].float(), dim=-1)


@torch.inference_mode()
def main():
    args = arguments(300, FIXES)
    logging.basicConfig(level=logging.INFO)
    layers, width, ffn, heads, kv, vocab = (4, 8192, 28672, 64, 8, 32000) if args.gpu else (2, 64, 128, 4, 2, 100)
    batch, length = (8, 1024) if args.gpu else (2, 16)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(args.device):
        model = Embedder(layers, width, ffn, heads, kv, vocab).eval()
    torch.set_default_dtype(torch.float32)
    queue = torch.randint(0, vocab, (8, batch, length))
    clock = Clock(args.steps)
    for request in range(args.steps):
        vectors = model(queue[request % 8].to(args.device)).cpu()
        if request % 10 == 0:
            log.info("request %d: %d vectors, first %.4f", request, len(vectors), vectors[0, 0])
        clock.tick()
    weights = sum(p.numel() for layer in model.layers for p in layer.parameters() if p.ndim == 2)
    flops = 2 * weights * batch * length + layers * 2 * batch * length * length * width
    print(f"achieved {flops / clock.mean_ms / 1e9:.0f} TFLOP/s")
    clock.report()


if __name__ == "__main__":
    main()
