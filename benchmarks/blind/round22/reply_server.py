"""Suggested-reply service: batches of prompts in, a few greedy tokens out."""
import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x, past):
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        if past is not None:
            n = past["n"]
            past["k"][:, :, n:n + T] = k
            past["v"][:, :, n:n + T] = v
            past["n"] = n + T
            k, v = past["k"][:, :, :n + T], past["v"][:, :, :n + T]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=T > 1)
        return self.proj(y.transpose(1, 2).reshape(B, T, D))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.att = Attention(d, heads)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x, past=None):
        x = x + self.att(self.n1(x), past)
        return x + self.ff(self.n2(x))


class ReplyLM(nn.Module):
    def __init__(self, vocab=600, d=128, depth=3, heads=4, max_len=128):
        super().__init__()
        self.heads, self.d, self.max_len = heads, d, max_len
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(max_len, d)
        self.blocks = nn.ModuleList([Block(d, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab)

    def new_past(self, B):
        shape = (B, self.heads, self.max_len, self.d // self.heads)
        return [{"k": torch.empty(shape), "v": torch.empty(shape), "n": 0} for _ in self.blocks]

    def forward(self, ids, start=0, past=None):
        x = self.tok(ids) + self.pos.weight[start:start + ids.size(1)]
        for i, b in enumerate(self.blocks):
            x = b(x, past[i] if past else None)
        return self.head(self.norm(x[:, -1]))


@torch.inference_mode()
def reply(net, prompt, n_new, incremental):
    B, P = prompt.shape
    ids = torch.empty(B, P + n_new, dtype=torch.long)
    ids[:, :P] = prompt
    past = net.new_past(B) if incremental else None
    for n in range(P, P + n_new):
        if incremental:
            lo = 0 if n == P else n - 1
            logits = net(ids[:, lo:n], lo, past)
        else:
            logits = net(ids[:, :n])
        ids[:, n] = logits.argmax(-1)
    return ids[:, P:], logits


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--prompt", type=int, default=72)
    ap.add_argument("--new-tokens", type=int, default=16)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = ReplyLM().eval()
    gen = torch.Generator().manual_seed(8)
    lat, check = [], 0
    for req in range(1, args.steps + 1):
        prompt = torch.randint(0, 600, (args.batch, args.prompt), generator=gen)
        t0 = time.perf_counter()
        out, logits = reply(net, prompt, args.new_tokens, args.fix)
        check = (check * 31 + int(out.sum())) % 1_000_003
        lat.append(time.perf_counter() - t0)
        if req % 10 == 0:
            print(f"request {req} checksum {check} top {logits.max().item():.5f}")
    tail = lat[len(lat) // 2:]
    print(f"MEAN_STEP_MS {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
