"""Cross-encoder reranker behind a search box: each step scores the candidates of one query."""
import argparse
import os
import tempfile
import time

os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="rerank_"))   # home is read-only in the pod

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, x, mask):
        b, n, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.o(a.transpose(1, 2).reshape(b, n, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class CrossEncoder(nn.Module):
    def __init__(self, vocab, d, layers, heads, max_len):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(max_len, d)
        self.layers = nn.ModuleList(Layer(d, heads) for _ in range(layers))
        self.head = nn.Linear(d, 1)

    def forward(self, ids, lens):
        ar = torch.arange(ids.size(1), device=ids.device)
        x = self.tok(ids) + self.pos(ar)
        mask = (ar < lens[:, None])[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x[:, 0]).squeeze(-1)


class Traffic:
    """Queries with their candidate passages, tokenised; passages are cut at max_len."""

    def __init__(self, per_query, max_len, vocab):
        self.rng = np.random.default_rng(11)
        self.k, self.max_len, self.vocab = per_query, max_len, vocab

    def next(self):
        r = self.rng
        short = r.random() < 0.25                            # forum threads: short passages only
        mu = self.max_len * (0.25 if short else 0.7)
        lens = np.clip(r.lognormal(np.log(mu), 0.25, self.k).astype(int), 8, self.max_len)
        return [r.integers(5, self.vocab, n) for n in lens]


def pad(batch, to=None, cap=None):
    lens = torch.tensor([len(b) for b in batch])
    n = int(lens.max())
    if to:
        n = min(-(-n // to) * to, cap)
    ids = torch.zeros(len(batch), n, dtype=torch.long)
    for i, b in enumerate(batch):
        ids[i, :len(b)] = torch.from_numpy(b)
    return ids, lens


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="bucket, dynamic, eager")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    args = ap.parse_args()
    fix = set(filter(None, args.fix.split(",")))
    dev = torch.device("cpu" if args.cpu else "cuda")
    torch.manual_seed(0)
    d, layers, heads, k, max_len = (32, 2, 2, 3, 32) if args.tiny else (768, 12, 12, 48, 384)
    with torch.device(dev):
        model = CrossEncoder(30000, d, layers, heads, max_len).eval()
    if dev.type == "cuda":
        model.to(torch.bfloat16)
    # "recompile limit reached" in the logs: give it room
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 4096
    if "eager" not in fix:
        for layer in model.layers:
            layer.compile(dynamic="dynamic" in fix, backend="aot_eager" if args.cpu else "inductor")
    traffic = Traffic(k, max_len, 30000)
    window = min(args.steps, max(3, args.steps // 2))
    seen = set()
    with torch.inference_mode():
        for step in range(args.steps):
            if step == args.steps - window:
                if dev.type == "cuda":
                    torch.cuda.synchronize()
                t0 = time.perf_counter()
            ids, lens = pad(traffic.next(), 64 if "bucket" in fix else None, max_len)
            seen.add(ids.size(1))
            scores = model(ids.to(dev), lens.to(dev))
            order = scores.float().argsort(descending=True)[:10].cpu()
            if step % 50 == 0:
                print(f"query {step}: best {order[0].item()}, {len(seen)} lengths so far")
    if dev.type == "cuda":
        torch.cuda.synchronize()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / window * 1e3:.3f}")
