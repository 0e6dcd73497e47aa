"""Sequential recommender with pointwise (SiLU) attention and a learned bias over the time between two events."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=60)
ap.add_argument("--fix", default="", help="comma separated")
ap.add_argument("--tiny", action="store_true")
ap.add_argument("--cpu", action="store_true")


class TimeBias(nn.Module):
    """One scalar per head and per bucket of |t_i - t_j| (log scale)."""

    def __init__(self, heads, buckets, lookup):
        super().__init__()
        self.buckets = buckets
        self.table = nn.Parameter(torch.randn(buckets + 1, heads) * 0.02)
        self.lookup = lookup

    def forward(self, bucket):
        if self.lookup:
            b = F.embedding(bucket, self.table)
        else:
            b = self.table[bucket]
        return b.permute(0, 3, 1, 2)


class GatedUnit(nn.Module):
    def __init__(self, d, heads, buckets, lookup):
        super().__init__()
        self.h = heads
        self.norm, self.norm_out = nn.LayerNorm(d), nn.LayerNorm(d)
        self.uvqk = nn.Linear(d, 4 * d)
        self.out = nn.Linear(d, d)
        self.time_bias = TimeBias(heads, buckets, lookup)

    def forward(self, x, bucket, visible):
        b, t, d = x.shape
        u, v, q, k = F.silu(self.uvqk(self.norm(x))).chunk(4, dim=-1)
        v, q, k = (z.reshape(b, t, self.h, d // self.h).transpose(1, 2) for z in (v, q, k))
        att = F.silu(q @ k.transpose(-1, -2) + self.time_bias(bucket)) / t
        y = ((att * visible) @ v).transpose(1, 2).reshape(b, t, d)
        return x + self.out(u * self.norm_out(y))


class SessionRec(nn.Module):
    def __init__(self, items, d, heads, layers, length, buckets=128, lookup=False):
        super().__init__()
        self.item = nn.Embedding(items, d)
        self.pos = nn.Embedding(length, d)
        nn.init.normal_(self.item.weight, std=0.02)
        nn.init.normal_(self.pos.weight, std=0.02)
        self.units = nn.ModuleList(GatedUnit(d, heads, buckets, lookup) for _ in range(layers))
        self.buckets = buckets
        self.register_buffer("visible", torch.ones(length, length).tril(), persistent=False)

    def forward(self, seq, ts):
        gap = (ts[:, :, None] - ts[:, None, :]).abs().float()
        bucket = (torch.log1p(gap) / 0.301).long().clamp_(0, self.buckets)
        x = self.item(seq) + self.pos.weight
        for unit in self.units:
            x = unit(x, bucket, self.visible)
        return F.normalize(x, dim=-1)

    def loss(self, seq, ts, target, negatives):
        h = self(seq, ts)
        pos = F.normalize(self.item(target), dim=-1)
        neg = F.normalize(self.item(negatives), dim=-1)
        logits = torch.cat([(h * pos).sum(-1, keepdim=True), h @ neg.t()], dim=-1) / 0.05
        return F.cross_entropy(logits.flatten(0, 1), logits.new_zeros(h.shape[0] * h.shape[1], dtype=torch.long))


def histories(users, length, items, gen):
    """Item ids and unix times: bursts within a visit, hours to weeks between visits."""
    pop = torch.rand(users, length + 1, generator=gen) ** 2.5
    seq = (pop * items).long().clamp_(max=items - 1)
    within = torch.rand(users, length + 1, generator=gen) < 0.8
    short = torch.randn(users, length + 1, generator=gen).mul(1.2).add(4.0).exp()
    pause = torch.randn(users, length + 1, generator=gen).mul(1.8).add(11.0).exp()
    return seq, torch.where(within, short, pause).clamp(1, 4e6).long().cumsum(1)


def main():
    a = ap.parse_args()
    fix = a.fix.split(",")
    dev = torch.device("cpu") if a.cpu else torch.device("cuda")
    if a.tiny:
        users, items, batch, length, d, heads, layers, n_neg = 64, 500, 4, 24, 32, 4, 2, 32
    else:
        users, items, batch, length, d, heads, layers, n_neg = 8000, 60000, 16, 192, 256, 8, 2, 512
    gen = torch.Generator().manual_seed(5)
    seq, ts = (t.to(dev) for t in histories(users, length, items, gen))
    torch.manual_seed(5)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = SessionRec(items, d, heads, layers, length, lookup="embedding_bias" in fix).to(dev)
    opt = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.0, fused=dev.type == "cuda")
    running = torch.zeros((), device=dev)
    mark = a.steps // 2
    for step in range(a.steps):
        if step == mark:
            if dev.type == "cuda":
                torch.cuda.synchronize()
            begin = time.perf_counter()
        who = torch.randint(users, (batch,), generator=gen).to(dev)
        neg = torch.randint(items, (n_neg,), generator=gen).to(dev)
        s, t = seq[who], ts[who]
        loss = model.loss(s[:, :-1], t[:, :-1], s[:, 1:], neg)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        running = 0.95 * running + 0.05 * loss.detach()
    if dev.type == "cuda":
        torch.cuda.synchronize()
    print("MEAN_STEP_MS %.3f" % ((time.perf_counter() - begin) * 1000.0 / (a.steps - mark)))
    print("loss %.5f running %.5f" % (loss.item(), running.item()))


if __name__ == "__main__":
    main()
