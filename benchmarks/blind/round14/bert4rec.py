"""BERT4Rec: bidirectional sequential recommendation, trained by filling in hidden items."""
import argparse
import contextlib
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_float32_matmul_precision("high")


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Bert4Rec(nn.Module):
    def __init__(self, items, d, layers, heads, length):
        super().__init__()
        self.item = nn.Embedding(items + 1, d)
        self.pos = nn.Parameter(torch.zeros(length, d))
        self.layers = nn.ModuleList(Layer(d, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.proj = nn.Linear(d, d)
        self.bias = nn.Parameter(torch.zeros(items + 1))
        nn.init.normal_(self.item.weight, std=0.02)

    def encode(self, seq):
        x = self.item(seq) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)

    def scores(self, h):
        return F.linear(F.gelu(self.proj(h)), self.item.weight, self.bias)


def hide(seq, mask_token, count):
    """Replace `count` items of each history; returns inputs, where, and what was there."""
    where = torch.rand(seq.shape, device=seq.device).topk(count, dim=1).indices
    target = seq.gather(1, where)
    return seq.scatter(1, where, mask_token), where, target


def cloze_loss(model, seq, mask_token, count, rows_first):
    inp, where, target = hide(seq, mask_token, count)
    h = model.encode(inp)
    if rows_first:
        h = h.gather(1, where.unsqueeze(-1).expand(-1, -1, h.size(-1)))
        return F.cross_entropy(model.scores(h).flatten(0, 1), target.flatten())
    labels = torch.full_like(seq, -100).scatter(1, where, target)
    return F.cross_entropy(model.scores(h).flatten(0, 1), labels.flatten(), ignore_index=-100)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=40)
    ap.add_argument("--fix", default="")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    a = ap.parse_args()
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(5)
    items, d, layers, heads, length, batch = (200, 16, 1, 2, 12, 4) if a.tiny else (54_000, 256, 4, 4, 128, 128)
    model = Bert4Rec(items, d, layers, heads, length).to(dev)
    opt = torch.optim.AdamW(model.parameters(), 1e-3, fused=not a.cpu)
    amp = torch.autocast("cuda", torch.bfloat16) if dev.type == "cuda" else contextlib.nullcontext()
    pop = (torch.rand(batch * 20, length, device=dev).pow(3) * items).long()
    count = max(1, int(0.15 * length))
    rows_first = "predict_rows" in a.fix.split(",")
    sync = torch.cuda.synchronize if dev.type == "cuda" else (lambda: None)
    tail = max(1, a.steps // 2)
    for step in range(a.steps):
        if step == a.steps - tail:
            sync()
            t0 = time.perf_counter()
        seq = pop[step % 20 * batch:(step % 20 + 1) * batch]
        with amp:
            loss = cloze_loss(model, seq, items, count, rows_first)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    sync()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / tail * 1e3:.3f}")
    print(f"final {loss.item():.5f}")


if __name__ == "__main__":
    main()
