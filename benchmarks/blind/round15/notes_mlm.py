"""Masked language model on short notes (tied embeddings, pre-norm transformer)."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, SEQ, DIM, MASK = 12000, 96, 128, 3


def make_corpus(n, gen):
    """Notes are walks over a ring of word ids with some topic-dependent stride."""
    start = torch.randint(4, VOCAB, (n, 1), generator=gen)
    stride = torch.randint(1, 6, (n, 1), generator=gen)
    noise = torch.randint(0, 3, (n, SEQ), generator=gen)
    walk = start + stride * torch.arange(SEQ) + noise
    return 4 + walk % 1500


def mask_tokens(ids, gen, rate=0.15):
    chosen = torch.rand(ids.shape, generator=gen) < rate
    roll = torch.rand(ids.shape, generator=gen)
    inputs = ids.clone()
    inputs[chosen & (roll < 0.8)] = MASK
    swap = chosen & (roll > 0.9)
    inputs[swap] = torch.randint(4, VOCAB, (int(swap.sum()),), generator=gen)
    labels = ids.masked_fill(~chosen, -100)
    return inputs, labels


class Block(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.n2(x))


class NoteLM(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(SEQ, DIM)
        nn.init.normal_(self.tok.weight, std=0.02)
        nn.init.normal_(self.pos.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(DIM) for _ in range(layers))
        self.norm = nn.LayerNorm(DIM)
        self.bias = nn.Parameter(torch.zeros(VOCAB))

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def predict(self, h):
        return F.linear(h, self.tok.weight, self.bias)

    def loss(self, ids, labels, chosen_only):
        h = self(ids).flatten(0, 1)
        labels = labels.flatten()
        if chosen_only:
            rows = (labels != -100).nonzero().squeeze(1)
            h, labels = h.index_select(0, rows), labels[rows]
        return F.cross_entropy(self.predict(h), labels, ignore_index=-100)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=70)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(11)

    corpus = make_corpus(4000, gen)
    model = NoteLM()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    times = []
    for step in range(args.steps):
        t0 = time.perf_counter()
        ids = corpus[torch.randint(0, len(corpus), (16,), generator=gen)]
        inputs, labels = mask_tokens(ids, gen)
        loss = model.loss(inputs, labels, chosen_only=args.fix)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        times.append(time.perf_counter() - t0)
        if step % 20 == 0 or step == args.steps - 1:
            print(f"step {step} loss {loss.item():.5f}")
    tail = times[len(times) // 3:]
    print(f"mean step ms {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
