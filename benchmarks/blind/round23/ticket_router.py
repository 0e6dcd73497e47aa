"""Support-ticket routing service: tokenise, batch, classify with a small text encoder."""
import argparse
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WORDS = ("login error refund card order late broken screen password update invoice "
         "charge cancel plan email account reset delivery return slow crash app sync").split()
QUEUES = ["billing", "shipping", "technical", "account"]
MAX_LEN = 128


class Tokenizer:
    def __init__(self, words):
        self.vocab = {w: i + 2 for i, w in enumerate(words)}

    def encode(self, text):
        return [self.vocab.get(w, 1) for w in text.lower().split()][:MAX_LEN]

    def batch(self, texts, new_form=False):
        rows = [self.encode(t) for t in texts]
        length = max(len(r) for r in rows) if new_form else MAX_LEN
        ids = torch.zeros(len(rows), length, dtype=torch.long)
        for i, r in enumerate(rows):
            ids[i, :len(r)] = torch.tensor(r)
        return ids, ids != 0


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, mask):
        b, t, d = x.shape
        qkv = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.n2(x))


class Router(nn.Module):
    def __init__(self, vocab, dim=192, heads=6, layers=4):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(MAX_LEN, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.head = nn.Linear(dim, len(QUEUES))

    def forward(self, ids, mask):
        x = self.tok(ids) + self.pos.weight[:ids.shape[1]]
        for blk in self.blocks:
            x = blk(x, mask)
        m = mask.unsqueeze(-1).float()
        return self.head((x * m).sum(1) / m.sum(1))


def incoming(rng, n):
    """Most tickets are a sentence or two."""
    for _ in range(n):
        k = min(MAX_LEN, max(3, int(rng.lognormvariate(2.5, 0.45))))
        yield " ".join(rng.choice(WORDS) for _ in range(k))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--fix", default="")
    args = p.parse_args()
    torch.manual_seed(0)
    rng = random.Random(0)

    tok = Tokenizer(WORDS)
    model = Router(len(WORDS) + 2).eval()
    routed = dict.fromkeys(QUEUES, 0)
    conf = 0.0
    with torch.inference_mode():
        for step in range(args.steps):
            if step == args.steps // 3:
                t0 = time.perf_counter()
            texts = list(incoming(rng, 16))
            ids, mask = tok.batch(texts, new_form=args.fix == "v2")
            prob = model(ids, mask).softmax(-1)
            top, which = prob.max(-1)
            for w in which.tolist():
                routed[QUEUES[w]] += 1
            conf += top.mean().item()
            if step % 50 == 0:
                print(f"step {step} {routed}")
    ms = (time.perf_counter() - t0) / (args.steps - args.steps // 3) * 1e3
    print(f"mean confidence {conf / args.steps:.6f} {routed}")
    print(f"mean step ms {ms:.2f}")


if __name__ == "__main__":
    main()
