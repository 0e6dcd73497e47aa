"""Entity tagger over short sentences: convolutional encoder, per-token labels; the corpus is read into sentence objects."""
import argparse
import gc
import random
import time

import torch
import torch.nn.functional as F
from torch import nn

LABELS = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC"]


class Token:
    def __init__(self, text, start, label):
        self.text, self.start, self.label = text, start, label


class Sentence:
    def __init__(self, doc_id, tokens):
        self.doc_id, self.tokens = doc_id, tokens

    def __len__(self):
        return len(self.tokens)


def read_corpus(n, vocab, rng):
    words = [f"w{i}" for i in range(vocab)]
    corpus = []
    for i in range(n):
        tokens, at = [], 0
        for _ in range(rng.randint(6, 18)):
            w = min(int(rng.paretovariate(0.25)), vocab - 1)
            label = LABELS[(w * 7) % len(LABELS)] if w % 3 == 0 else "O"
            tokens.append(Token(words[w], at, label))
            at += len(words[w]) + 1
        corpus.append(Sentence(i // 8, tokens))
    return corpus, words


class Vocabulary:
    def __init__(self, words):
        self.index = {w: i + 2 for i, w in enumerate(words)}

    def __len__(self):
        return len(self.index) + 2

    def encode(self, sentence):
        return [self.index.get(t.text, 1) for t in sentence.tokens], [LABELS.index(t.label) for t in sentence.tokens]


class Numberer:
    """All sentences as padded rows of numbers, made once."""

    def __init__(self, corpus, vocabulary, width, device):
        self.x = torch.zeros(len(corpus), width, dtype=torch.int32)
        self.y = torch.full((len(corpus), width), -100, dtype=torch.int8)
        for i, s in enumerate(corpus):
            ids, tags = vocabulary.encode(s)
            self.x[i, :len(ids)], self.y[i, :len(ids)] = torch.tensor(ids), torch.tensor(tags)
        self.x, self.y = self.x.to(device), self.y.to(device)

    def batches(self, size):
        while True:
            for rows in torch.randperm(len(self.x), device=self.x.device).split(size):
                yield rows, self.x[rows].long(), self.y[rows].long()


class ConvTagger(nn.Module):
    def __init__(self, vocab, dim, layers, n_labels):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(dim, dim, 3, padding=1) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers))
        self.out = nn.Linear(dim, n_labels)

    def forward(self, ids):
        x = self.emb(ids)
        for conv, norm in zip(self.convs, self.norms):
            x = x + F.relu(norm(conv(x.transpose(1, 2)).transpose(1, 2)))
        return self.out(x)


def release(device):
    """Keeps the resident size flat over a long run."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def examples(corpus, rows, logits, n=2):
    for r in rows[:n].tolist():
        s, tags = corpus[r], logits[0].argmax(-1).tolist()
        yield " ".join(f"{t.text}/{LABELS[g]}" for t, g in zip(s.tokens[:4], tags))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240)
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--fix", default="", help="rarely, freeze")
    args = ap.parse_args()
    n, vocab, dim, layers, batch = (400_000, 60_000, 512, 6, 1024) if args.device == "cuda" else (6_000, 6_000, 96, 3, 128)

    corpus, words = read_corpus(n, vocab, random.Random(4))
    vocabulary = Vocabulary(words)
    data = Numberer(corpus, vocabulary, 18, args.device)
    torch.manual_seed(4)
    model = ConvTagger(len(vocabulary), dim, layers, len(LABELS)).to(args.device)
    opt = torch.optim.Adam(model.parameters(), 2e-3, fused=True)
    release_every = 100 if args.fix == "rarely" else 1
    if args.fix == "freeze":
        gc.collect()
        gc.freeze()

    stamps = []
    for step, (rows, x, y) in enumerate(data.batches(batch), 1):
        logits = model(x)
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-100)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % release_every == 0:
            release(args.device)
        if step % 80 == 0:
            print(f"step {step} loss {loss.item():.4f}", *examples(corpus, rows, logits), sep="\n  ")
        if args.device == "cuda":
            torch.cuda.synchronize()
        stamps.append(time.perf_counter())
        if step == args.steps:
            break
    tail = stamps[args.steps // 3 - 1:]
    print(f"final loss {loss.item():.5f}")
    print(f"mean step ms {(tail[-1] - tail[0]) / (len(tail) - 1) * 1e3:.3f}")


if __name__ == "__main__":
    main()
