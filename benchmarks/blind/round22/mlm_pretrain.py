"""Masked-LM pre-training of a tiny encoder."""
import argparse
import time

import torch
from torch import nn
import torch.nn.functional as F

MASK, IGNORE = 1, -100


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = self.qkv(self.n1(x)).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, T, D)
        x = x + self.proj(a)
        return x + self.ff(self.n2(x))


class Encoder(nn.Module):
    def __init__(self, vocab, d, depth, heads, max_len):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(max_len, d)
        nn.init.normal_(self.tok.weight, std=0.02)
        self.layers = nn.Sequential(*[Layer(d, heads) for _ in range(depth)])
        self.transform = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.LayerNorm(d))
        self.bias = nn.Parameter(torch.zeros(vocab))

    def forward(self, ids):
        return self.layers(self.tok(ids) + self.pos.weight[:ids.size(1)])

    def predict(self, h):
        return F.linear(self.transform(h), self.tok.weight, self.bias)


def mlm_loss(net, ids, labels, selected):
    h = net(ids)
    if selected:
        at = (labels.view(-1) != IGNORE).nonzero().squeeze(1)
        logits = net.predict(h.flatten(0, 1)[at])
        return F.cross_entropy(logits, labels.view(-1)[at])
    logits = net.predict(h)
    return F.cross_entropy(logits.flatten(0, 1), labels.view(-1), ignore_index=IGNORE)


def corrupt(ids, vocab, gen, p=0.15):
    u = torch.rand(ids.shape, generator=gen)
    labels = ids.masked_fill(u >= p, IGNORE)
    out = ids.masked_fill(u < 0.8 * p, MASK)
    rnd = torch.randint(2, vocab, ids.shape, generator=gen)
    return torch.where((u >= 0.8 * p) & (u < 0.9 * p), rnd, out), labels


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--seq", type=int, default=64)
    ap.add_argument("--vocab", type=int, default=6000)
    ap.add_argument("--dim", type=int, default=96)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(2)
    gen = torch.Generator().manual_seed(2)
    stream = (torch.rand(200_000, generator=gen).pow(4) * (args.vocab - 2)).long() + 2
    net = Encoder(args.vocab, args.dim, 2, 4, args.seq)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    times = []
    for step in range(args.steps):
        t0 = time.perf_counter()
        at = torch.randint(0, len(stream) - args.seq, (args.batch, 1), generator=gen)
        ids, labels = corrupt(stream[at + torch.arange(args.seq)], args.vocab, gen)
        loss = mlm_loss(net, ids, labels, args.fix)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        times.append(time.perf_counter() - t0)
        if (step + 1) % 20 == 0:
            print(f"{step + 1} mlm {loss.item():.5f}")
    tail = times[len(times) // 2:]
    print(f"MEAN_STEP_MS {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
