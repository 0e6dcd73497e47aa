"""Pre-train a small character/BPE language model whose layers attend to a sliding window (Mistral style)."""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--fix", default="")
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--cpu", action="store_true")
opt = parser.parse_args()
FIX = set(opt.fix.split(","))
DEV = torch.device("cpu" if opt.cpu else "cuda")

if opt.tiny:
    B, T, WINDOW, D, H, LAYERS, VOCAB = 2, 128, 16, 64, 4, 2, 256
else:
    B, T, WINDOW, D, H, LAYERS, VOCAB = 2, 8192, 512, 768, 12, 6, 8192


def window_mask(t, w, device):
    """True where query i may look at key j: j <= i and i - j < w."""
    i = torch.arange(t, device=device)
    dist = i[:, None] - i[None, :]
    return (dist >= 0) & (dist < w)


def chunk_mask(batch, t, w, device):
    """The same rule for chunks of w queries against their own and the previous chunk of keys."""
    n = t // w
    i, j = torch.arange(w, device=device)[:, None], torch.arange(2 * w, device=device)[None] - w
    m = ((i - j >= 0) & (i - j < w)).expand(n, 1, w, 2 * w).clone()
    m[0, :, :, :w] = False
    return m.repeat(batch, 1, 1, 1)


def chunked_attention(q, k, v, mask, w):
    b, h, t, d = q.shape
    n = t // w

    def fold(x):
        return x.transpose(1, 2).reshape(b * n, h, -1, d)

    def with_previous(x):
        x = x.reshape(b, h, n, w, d)
        return torch.cat([F.pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1], x], 3)

    o = F.scaled_dot_product_attention(fold(q.reshape(b, h, n, w, d)), fold(with_previous(k)),
                                       fold(with_previous(v)), attn_mask=mask)
    return o.reshape(b, n, h, w, d).transpose(1, 2).reshape(b, h, t, d)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(D, 3 * D)
        self.proj = nn.Linear(D, D)

    def forward(self, x, mask):
        b, t, _ = x.shape
        q, k, v = (z.view(b, t, H, D // H).transpose(1, 2) for z in self.qkv(x).split(D, dim=-1))
        if "local_chunks" in FIX:
            y = chunked_attention(q, k, v, mask, WINDOW)
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.proj(y.transpose(1, 2).reshape(b, t, D))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attn = Attention()
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))

    def forward(self, x, mask):
        x = x + self.attn(self.ln1(x), mask)
        return x + self.mlp(self.ln2(x))


class WindowLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, D)
        self.pos = nn.Embedding(T, D)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.ln = nn.LayerNorm(D)
        self.head = nn.Linear(D, VOCAB, bias=False)
        make = chunk_mask(B, T, WINDOW, DEV) if "local_chunks" in FIX else window_mask(T, WINDOW, DEV)
        self.register_buffer("mask", make, persistent=False)
        for n, p in self.named_parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * LAYERS) if "proj" in n else 1))

    def forward(self, idx, target):
        x = self.tok(idx) + self.pos.weight
        for layer in self.layers:
            x = layer(x, self.mask)
        return F.cross_entropy(self.head(self.ln(x)).view(-1, VOCAB), target.view(-1))


def main():
    torch.manual_seed(1337)
    torch.set_float32_matmul_precision("high")
    model = WindowLM().to(DEV)
    optim = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=DEV.type == "cuda")
    # a corpus with some structure: most tokens follow from the one before
    g = torch.Generator().manual_seed(0)
    corpus = torch.randint(0, VOCAB, (40 * T,), generator=g)
    follow = torch.rand(corpus.numel(), generator=g) < 0.5
    corpus[1:] = torch.where(follow[1:], (corpus[:-1] * 7 + 1) % VOCAB, corpus[1:])
    corpus = corpus.to(DEV)
    start = 0.0
    for step in range(opt.steps):
        if step == opt.steps // 2:
            if DEV.type == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
        at = torch.randint(0, corpus.numel() - T - 1, (B,), generator=g).tolist()
        x = torch.stack([corpus[s:s + T] for s in at])
        y = torch.stack([corpus[s + 1:s + T + 1] for s in at])
        with torch.autocast(DEV.type, dtype=torch.bfloat16, enabled=DEV.type == "cuda"):
            loss = model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        optim.zero_grad(set_to_none=True)
    if DEV.type == "cuda":
        torch.cuda.synchronize()
    print(f"MEAN_STEP_MS {(time.perf_counter() - start) / (opt.steps - opt.steps // 2) * 1000:.3f}")
    print(f"loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
