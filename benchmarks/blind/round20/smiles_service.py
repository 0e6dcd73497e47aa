"""Molecule suggestions for chemists: SMILES strings continued from a scaffold by a small decoder-only transformer."""
import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

FIXES = ("kv_cache", "last_logits")
ALPHABET = ["<s>", "</s>", *"CNOSPFIcnos()[]=#123456-+\\/@HBl"]
SCAFFOLDS = ("c1ccccc1C(=O)N", "C1CCNCC1c2ccc", "O=C(O)c1cccnc1", "CC(C)Cc1ccc(cc1", "N#Cc1ccc(F)cc1O")


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, cache=None):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = cache.extend(k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x, cache=None):
        x = x + self.attention(self.norm1(x), cache)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Cache:
    """Keys and values of one layer, room for the whole string."""

    def __init__(self, batch, heads, length, dim):
        self.k, self.v = torch.zeros(2, batch, heads, length, dim // heads)
        self.used = 0

    def extend(self, k, v):
        end = self.used + k.shape[2]
        self.k[:, :, self.used:end], self.v[:, :, self.used:end] = k, v
        self.used = end
        return self.k[:, :, :end], self.v[:, :, :end]


class SmilesDecoder(nn.Module):
    def __init__(self, dim, heads, depth, length):
        super().__init__()
        self.symbol, self.place = nn.Embedding(len(ALPHABET), dim), nn.Embedding(length, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, len(ALPHABET))

    def forward(self, ids, start=0, caches=None, last_only=False):
        x = self.symbol(ids) + self.place.weight[start:start + ids.shape[1]]
        for i, layer in enumerate(self.layers):
            x = layer(x, caches[i] if caches else None)
        return self.head(self.norm(x[:, -1:] if last_only else x))

    @torch.inference_mode()
    def suggest(self, ids, new, temperature, gen, fix=None):
        """`new` more symbols for every row, drawn from the softened distribution; strings that ended stay ended."""
        caches = None
        if fix == "kv_cache":
            heads = self.layers[0].attention.heads
            caches = [Cache(len(ids), heads, ids.shape[1] + new, self.place.embedding_dim) for _ in self.layers]
        ended = torch.zeros(len(ids), dtype=torch.bool)
        for i in range(new):
            if caches and i:
                logits = self(ids[:, -1:], ids.shape[1] - 1, caches, True)
            else:
                logits = self(ids, 0, caches, fix is not None)
            chance = torch.softmax(logits[:, -1] / temperature, dim=-1)
            symbol = torch.multinomial(chance, 1, generator=gen).squeeze(1)
            symbol = torch.where(ended, torch.ones_like(symbol), symbol)
            ended |= symbol == 1
            ids = torch.cat([ids, symbol[:, None]], 1)
        return ids


def encode(text):
    return [0, *(ALPHABET.index(c) for c in text)]


def decode(row):
    return "".join(ALPHABET[i] for i in row if i > 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=36, help="requests to answer")
    parser.add_argument("--fix", choices=FIXES)
    parser.add_argument("--size", choices=("cpu", "small"), default="cpu")
    args = parser.parse_args()
    dim, heads, depth, rows, new = (128, 4, 3, 8, 26) if args.size == "cpu" else (32, 2, 1, 2, 6)

    torch.manual_seed(7)
    model = SmilesDecoder(dim, heads, depth, 64).eval()
    gen = torch.Generator().manual_seed(7)
    took, distinct, length = [], set(), 0.0
    for request in range(args.steps):
        scaffold = SCAFFOLDS[request % len(SCAFFOLDS)][:14]
        start = time.perf_counter()
        ids = torch.tensor(encode(scaffold)).expand(rows, -1)
        answer = [decode(row) for row in model.suggest(ids, new, 0.9, gen, args.fix).tolist()]
        took.append((time.perf_counter() - start) * 1e3)
        distinct.update(answer)
        length += sum(map(len, answer)) / rows / args.steps
    took = took[args.steps // 3:]
    print(f"{len(distinct)} distinct strings, for instance {answer[0]}")
    print(f"mean length {length:.6f} p95 {statistics.quantiles(took, n=20)[-1]:.1f} ms")
    print(f"mean step ms {statistics.fmean(took):.3f}")


if __name__ == "__main__":
    main()
