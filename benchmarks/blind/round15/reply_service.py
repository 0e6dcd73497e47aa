"""Batch reply service: greedy decoding of a small causal LM for groups of eight requests."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, HEADS, LAYERS, MAXLEN = 6000, 512, 8, 6, 256
PROMPT, CHUNK, BATCH = 32, 8, 8


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x, store, at):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)
        store[0, :, :, at:at + t] = k
        store[1, :, :, at:at + t] = v
        keys, values = store[0, :, :, :at + t], store[1, :, :, :at + t]
        a = F.scaled_dot_product_attention(q, keys, values, is_causal=t > 1)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class ReplyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(MAXLEN, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids, store, at):
        x = self.tok(ids) + self.pos.weight[at:at + ids.shape[1]]
        for layer, s in zip(self.layers, store):
            x = layer(x, s, at)
        return self.head(self.norm(x[:, -1]))


class Service:
    """Keeps one key/value store for the group being answered and streams tokens in chunks."""

    def __init__(self, model):
        self.model = model.eval()
        self.store = torch.zeros(LAYERS, 2, BATCH, HEADS, MAXLEN, DIM // HEADS)
        self.at = MAXLEN

    def admit(self, prompts):
        self.last = self.model(prompts, self.store, 0).argmax(-1, keepdim=True)
        self.at = prompts.shape[1]

    def full(self):
        return self.at + CHUNK > MAXLEN

    def chunk(self):
        out = torch.empty(BATCH, CHUNK, dtype=torch.long)
        for i in range(CHUNK):
            out[:, i] = self.last[:, 0]
            self.last = self.model(self.last, self.store, self.at).argmax(-1, keepdim=True)
            self.at += 1
        return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--fix", action="store_true", help="no other form: same run")
    args = ap.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(15)

    service = Service(ReplyLM())
    times, groups = [], 0
    with torch.inference_mode():
        for step in range(args.steps):
            t0 = time.perf_counter()
            if service.full():
                service.admit(torch.randint(0, VOCAB, (BATCH, PROMPT), generator=gen))
                groups += 1
            tokens = service.chunk()
            times.append(time.perf_counter() - t0)
            if step % 20 == 0 or step == args.steps - 1:
                print(f"chunk {step} group {groups} length {service.at} check {int(tokens.sum())}")
    tail = times[len(times) // 3:]
    print(f"mean step ms {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
