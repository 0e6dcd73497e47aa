"""Intent recognition for a voice assistant: word pieces, a small transformer encoder, micro-batches of utterances."""
import argparse
import statistics
import time
import zlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, CLS = 0, 1


class Pieces:
    """Hashes words into a fixed vocabulary, long words into several pieces."""

    def __init__(self, size, max_length):
        self.size, self.max_length, self.seen = size, max_length, {}

    def word(self, w):
        if w not in self.seen:
            self.seen[w] = [2 + zlib.crc32(w[i:i + 5].encode()) % (self.size - 2) for i in range(0, len(w), 5)]
        return self.seen[w]

    def encode(self, text):
        return [CLS, *(p for w in text.split() for p in self.word(w))][:self.max_length]

    def __call__(self, texts, padding):
        rows = [self.encode(t) for t in texts]
        length = self.max_length
        if padding == "longest":
            length = max(map(len, rows))
        elif padding == "multiple":
            length = min(self.max_length, -(-max(map(len, rows)) // 32) * 32)
        ids = np.full((len(rows), length), PAD, dtype=np.int64)
        for i, row in enumerate(rows):
            ids[i, :len(row)] = row
        return torch.from_numpy(ids)


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x, keep):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class IntentNet(nn.Module):
    def __init__(self, vocab, dim, heads, depth, max_length, intents):
        super().__init__()
        self.piece, self.place = nn.Embedding(vocab, dim), nn.Embedding(max_length, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, intents)

    def forward(self, ids):
        keep = ids != PAD
        x = self.piece(ids) + self.place.weight[:ids.shape[1]]
        for layer in self.layers:
            x = layer(x, keep)
        return self.head(self.norm(x[:, 0]))


def utterances(batch, seed=6):
    rng = np.random.default_rng(seed)
    words = ["".join(chr(97 + c) for c in rng.integers(26, size=n)) for n in rng.integers(2, 11, size=4000)]
    while True:
        lengths = np.clip(rng.lognormal(2.3, 0.45, size=batch), 2, 60).astype(int)
        yield [" ".join(words[i] for i in rng.zipf(1.4, size=n) % 4000) for n in lengths]


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="longest, multiple")
    ap.add_argument("--device", default="cpu")
    args = ap.parse_args()
    vocab, dim, heads, depth, batch = (30_000, 1024, 16, 12, 128) if args.device == "cuda" else (8000, 192, 6, 3, 12)
    torch.manual_seed(0)
    pieces = Pieces(vocab, 128)
    net = IntentNet(vocab, dim, heads, depth, pieces.max_length, 64).to(args.device).eval()
    calls, took, top = utterances(batch), [], 0.0
    for _ in range(args.steps):
        texts = next(calls)
        start = time.perf_counter()
        ids = pieces(texts, args.fix or "max_length").to(args.device)
        with torch.inference_mode():
            probability, intent = net(ids).softmax(-1).max(-1)
        answer = list(zip(intent.tolist(), probability.tolist()))
        took.append((time.perf_counter() - start) * 1e3)
        top += sum(p for _, p in answer) / batch
    took = took[args.steps // 3:]
    print(f"mean confidence {top / args.steps:.6f} median {statistics.median(took):.2f} ms")
    print(f"mean step ms {statistics.fmean(took):.3f}")


if __name__ == "__main__":
    main()
