"""Dense passage retrieval: encode queries, rank the passage index, report recall and MRR."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class QueryEncoder(nn.Module):
    def __init__(self, vocab=8000, dim=96, out=64):
        super().__init__()
        self.emb = nn.EmbeddingBag(vocab, dim, mode="mean", padding_idx=0)
        self.proj = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, out))

    def forward(self, tokens):
        return F.normalize(self.proj(self.emb(tokens)), dim=-1)


class PassageIndex:
    def __init__(self, vectors, k, new_form=False):
        self.vectors = F.normalize(vectors, dim=-1)
        self.k = k
        self.new_form = new_form

    def search(self, queries):
        scores = queries @ self.vectors.T
        if self.new_form:
            best, ids = scores.topk(self.k, dim=1)
        else:
            best, ids = scores.sort(dim=1, descending=True)
            best, ids = best[:, :self.k], ids[:, :self.k]
        return best, ids


class Scoreboard:
    def __init__(self):
        self.hits = 0
        self.rr = 0.0
        self.n = 0

    def add(self, ids, gold):
        match = ids == gold[:, None]
        found = match.any(1)
        rank = match.float().argmax(1) + 1
        self.hits += int(found.sum())
        self.rr += float((found / rank).sum())
        self.n += len(gold)

    def __str__(self):
        return f"recall {self.hits / self.n:.4f} mrr {self.rr / self.n:.5f} n {self.n}"


def build_corpus(encoder, n_docs, length, vocab=8000):
    """Passages are token bags; gold queries are noisy copies of passages."""
    tokens = torch.randint(1, vocab, (n_docs, length))
    vecs = torch.cat([encoder(chunk) for chunk in tokens.split(8192)])
    return tokens, vecs


def make_queries(tokens, batch):
    gold = torch.randint(0, len(tokens), (batch,))
    q = tokens[gold].clone()
    noise = torch.rand(q.shape) < 0.6
    q[noise] = torch.randint(1, 8000, (int(noise.sum()),))
    return q, gold


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--fix", default="")
    args = p.parse_args()
    torch.manual_seed(0)

    with torch.inference_mode():
        encoder = QueryEncoder().eval()
        tokens, vecs = build_corpus(encoder, 60000, 24)
        index = PassageIndex(vecs, k=20, new_form=args.fix == "v2")
        board = Scoreboard()
        batch_size = 24
        for step in range(args.steps):
            if step == args.steps // 3:
                t0 = time.perf_counter()
            q, gold = make_queries(tokens, batch_size)
            emb = encoder(q)
            best, ids = index.search(emb)
            board.add(ids, gold)
            if step % 50 == 0:
                print(f"step {step} {board} top score {best[:, 0].mean().item():.4f}")
    ms = (time.perf_counter() - t0) / (args.steps - args.steps // 3) * 1e3
    print(f"final {board}")
    print(f"mean step ms {ms:.2f}")


if __name__ == "__main__":
    main()
