"""Writes short briefs of news items with a small decoder LM; no trigram may occur twice in prompt and brief.

Requests are served in full batches from a static key/value cache; one step is one token for every request.
"""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

FIXES = ["on-device-ban", "half-logits"]
STEPS = 90
NGRAM = 3


def seen_continuations(history, ngram):
    """For one request: the tokens that have followed each (ngram - 1)-gram so far."""
    table = {}
    tokens = history.tolist()
    for gram in zip(*[tokens[i:] for i in range(ngram)]):
        prefix = tuple(gram[:-1])
        table[prefix] = table.get(prefix, []) + [gram[-1]]
    return table, tuple(tokens[len(tokens) - ngram + 1 :])


def ban_repeats(scores, ids, ngram):
    """Scores with -inf for every token that would complete an n-gram already present in its row of ids."""
    for row, history in enumerate(ids):
        table, tail = seen_continuations(history, ngram)
        banned = table.get(tail, [])
        if banned:
            scores[row, banned] = -float("inf")
    return scores


def ban_repeats_on_device(scores, ids, ngram):
    match = ids.unfold(1, ngram - 1, 1)[:, :-1] == ids[:, None, 1 - ngram :]
    follows = ids[:, ngram - 1 :]
    blocked = torch.zeros_like(scores).scatter_add_(1, follows, match.all(2).to(scores.dtype))
    return scores.masked_fill(blocked > 0, -float("inf"))


class Layer(nn.Module):
    def __init__(self, dim, heads, batch, room):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.register_buffer("cache", torch.zeros(2, batch, heads, room, dim // heads))

    def forward(self, x, at):
        b, t, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        self.cache[0, :, :, at : at + t], self.cache[1, :, :, at : at + t] = k, v
        keys, values = self.cache[:, :, :, : at + t]
        y = F.scaled_dot_product_attention(q, keys, values, is_causal=t > 1)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, dim))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Writer(nn.Module):
    def __init__(self, vocab, dim, heads, layers, batch, room):
        super().__init__()
        self.words, self.places = nn.Embedding(vocab, dim), nn.Embedding(room, dim)
        self.layers = nn.ModuleList(Layer(dim, heads, batch, room) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        nn.init.normal_(self.words.weight, std=0.05)

    def forward(self, ids, at):
        x = self.words(ids) + self.places.weight[at : at + ids.shape[1]]
        for layer in self.layers:
            x = layer(x, at)
        return F.linear(self.norm(x[:, -1]), self.words.weight)


@torch.inference_mode()
def main():
    args = arguments(STEPS, FIXES, cpu_steps=12)
    vocab, dim, heads, layers, batch, prompt, brief = (48, 32, 4, 2, 3, 40, 16)
    if args.gpu:
        vocab, dim, heads, layers, batch, prompt, brief = (32000, 1024, 16, 12, 64, 576, 96)
    torch.manual_seed(6)
    torch.set_default_dtype(torch.bfloat16 if args.gpu else torch.float32)
    with torch.device(args.device):
        model = Writer(vocab, dim, heads, layers, batch, prompt + brief).eval()
    torch.set_default_dtype(torch.float32)

    # A brief is `brief` tokens; a longer run takes the next batch of requests (its prefill counts as one step).
    generator = torch.Generator().manual_seed(6)
    clock, checksum = Clock(args.steps), 0
    ids = torch.empty(batch, prompt + brief, dtype=torch.long, device=args.device)
    for step in range(args.steps):
        at = prompt + step % brief
        if at == prompt:
            news = (torch.rand(batch, prompt, generator=generator) ** 3 * vocab).long()
            ids[:, :prompt] = news.to(args.device)
            scores = model(ids[:, :prompt], 0)
        else:
            scores = model(ids[:, at - 1 : at], at - 1)
        if args.fix != "half-logits":
            scores = scores.float()
        if args.fix == "on-device-ban":
            scores = ban_repeats_on_device(scores, ids[:, :at], NGRAM)
        else:
            scores = ban_repeats(scores, ids[:, :at], NGRAM)
        ids[:, at] = scores.argmax(-1)
        clock.tick()
    clock.report()
    checksum = (ids[:, prompt : at + 1] * torch.arange(1, at - prompt + 2, device=args.device)).sum().item()
    print(f"checksum {checksum}")


if __name__ == "__main__":
    main()
