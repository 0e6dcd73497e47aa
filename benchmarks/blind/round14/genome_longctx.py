"""Long-context genome encoder: masked nucleotide modelling over 32k-token windows."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class GenomeEncoder(nn.Module):
    def __init__(self, d, heads, layers, ctx):
        super().__init__()
        self.tok = nn.Embedding(8, d)
        self.pos = nn.Parameter(0.02 * torch.randn(ctx, d))
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 8)

    def forward(self, ids):
        x = self.tok(ids) + self.pos
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=20)
    ap.add_argument("--fix", default="")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    a = ap.parse_args()
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(6)
    ctx, d, heads, layers = (64, 32, 2, 2) if a.tiny else (32768, 1024, 8, 4)
    model = GenomeEncoder(d, heads, layers, ctx).to(dev, torch.bfloat16)
    opt = torch.optim.AdamW(model.parameters(), 2e-4, fused=not a.cpu)
    genome = torch.randint(0, 4, (ctx * 16,), device=dev)
    order = [SDPBackend.MATH] if a.cpu else [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]
    sync = torch.cuda.synchronize if dev.type == "cuda" else (lambda: None)
    tail = max(1, a.steps // 2)
    with sdpa_kernel(order, set_priority=True):
        for step in range(a.steps):
            if step == a.steps - tail:
                sync()
                t0 = time.perf_counter()
            ids = genome[step % 16 * ctx:(step % 16 + 1) * ctx].unsqueeze(0)
            hidden = torch.rand(ids.shape, device=dev) < 0.15
            logits = model(torch.where(hidden, 4, ids)).float()
            nll = F.cross_entropy(logits.flatten(0, 1), ids.flatten(), reduction="none")
            loss = (nll * hidden.flatten()).sum() / hidden.sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f}")
    sync()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / tail * 1e3:.3f}")


if __name__ == "__main__":
    main()
