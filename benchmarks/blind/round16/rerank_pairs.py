"""Second-stage reranking service: a small decoder LM reads (query, passage) and we compare its "yes" and "no".

Every request is one query with its first-stage candidates; passages come pre-chunked, so all prompts have one length.
"""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CFG = dict(vocab=151936, d=1024, layers=8, heads=16, ffn=3072, cands=32, length=384)
TINY = dict(vocab=997, d=64, layers=2, heads=4, ffn=128, cands=4, length=48)


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight, 1e-6)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Block(nn.Module):
    def __init__(self, d, heads, ffn):
        super().__init__()
        self.h = heads
        self.n1, self.n2 = RMSNorm(d), RMSNorm(d)
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.o = nn.Linear(d, d, bias=False)
        self.gate_up = nn.Linear(d, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, d, bias=False)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
        g, u = self.gate_up(self.n2(x)).chunk(2, -1)
        return x + self.down(F.silu(g) * u)


class CausalLM(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c["vocab"], c["d"])
        self.blocks = nn.ModuleList(Block(c["d"], c["heads"], c["ffn"]) for _ in range(c["layers"]))
        self.norm = RMSNorm(c["d"])
        self.lm_head = nn.Linear(c["d"], c["vocab"], bias=False)
        self.lm_head.weight = self.embed.weight
        hd = c["d"] // c["heads"]
        ang = torch.arange(c["length"])[:, None] / 1e6 ** (torch.arange(0, hd, 2) / hd)
        ang = torch.cat([ang, ang], -1)
        self.register_buffer("cos", ang.cos())
        self.register_buffer("sin", ang.sin())

    def hidden(self, ids):
        x = self.embed(ids)
        for blk in self.blocks:
            x = blk(x, self.cos, self.sin)
        return self.norm(x)

    def forward(self, ids):
        return self.lm_head(self.hidden(ids)).float()


class Reranker:
    def __init__(self, lm, yes_id, no_id, fix):
        self.lm, self.yes, self.no, self.fix = lm, yes_id, no_id, fix

    @torch.inference_mode()
    def scores(self, ids):
        if "last_token" in self.fix:
            h = self.lm.hidden(ids)[:, -1]
            pair = F.linear(h, self.lm.lm_head.weight[[self.no, self.yes]]).float()
        else:
            last = self.lm(ids)[:, -1, :]
            pair = torch.stack([last[:, self.no], last[:, self.yes]], dim=1)
        return F.log_softmax(pair, dim=1)[:, 1].exp()


def prompts(rng, c, n):
    """Tokenised requests: the same query in front of each of its passages, then the instruct suffix."""
    out = []
    for _ in range(n):
        q = torch.randint(10, c["vocab"], (1, c["length"] // 8), generator=rng).expand(c["cands"], -1)
        doc = torch.randint(10, c["vocab"], (c["cands"], c["length"] - q.shape[1] - 4), generator=rng)
        suffix = torch.tensor([[1, 2, 3, 4]]).expand(c["cands"], -1)
        out.append(torch.cat([q, doc, suffix], 1))
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--fix", default="")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    args = ap.parse_args()
    c = TINY if args.tiny else CFG
    dev = "cpu" if args.cpu else "cuda"
    torch.manual_seed(0)
    with torch.device(dev):
        lm = CausalLM(c)
        for p in lm.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02)
    lm = lm.to(torch.float32 if args.cpu else torch.bfloat16).eval()
    service = Reranker(lm, yes_id=7, no_id=8, fix=set(args.fix.split(",")))

    requests = prompts(torch.Generator().manual_seed(1), c, 16)
    if not args.cpu:
        requests = [r.pin_memory() for r in requests]
    half, total = args.steps // 2, 0.0
    for step in range(args.steps):
        if step == half:
            if not args.cpu:
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        ids = requests[step % len(requests)].to(dev, non_blocking=True)
        s = service.scores(ids)
        ranked = s.sort(descending=True)
        order, best = ranked.indices.tolist(), ranked.values[0].item()
        total += best
    if not args.cpu:
        torch.cuda.synchronize()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) * 1e3 / (args.steps - half):.3f}")
    print(f"top {order[:3]} mean_best_score {total / args.steps:.6f}")


if __name__ == "__main__":
    main()
