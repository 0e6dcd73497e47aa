"""Masked-item sequence recommender (bidirectional transformer over click histories)."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, items, d, layers, heads, length):
        super().__init__()
        self.item = nn.Embedding(items + 1, d)
        self.pos = nn.Parameter(torch.randn(length, d) * 0.02)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.bias = nn.Parameter(torch.zeros(items))
        nn.init.normal_(self.item.weight, std=0.02)

    def forward(self, seq):
        x = self.item(seq) + self.pos
        for b in self.blocks:
            x = b(x)
        return self.norm(x)

    def scores(self, h):
        return F.linear(h, self.item.weight[:-1], self.bias)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


def corrupt(seq, k, mask_id):
    """Hide k positions per history; labels are -100 where nothing is to be predicted."""
    where = torch.rand(seq.shape, device=seq.device).topk(k, dim=1).indices
    target = seq.gather(1, where)
    labels = torch.full_like(seq, -100).scatter(1, where, target)
    return seq.scatter(1, where, mask_id), labels, where, target


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--fix", default="")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--cpu", action="store_true")
    opt = p.parse_args()
    fix = set(filter(None, opt.fix.split(",")))
    dev = torch.device("cpu" if opt.cpu else "cuda")
    torch.manual_seed(0)
    items, d, layers, heads, length, k, batch, users = (50, 16, 1, 2, 12, 3, 4, 20) if opt.tiny else \
        (60_000, 256, 3, 4, 200, 30, 160, 20_000)
    model = Encoder(items, d, layers, heads, length).to(dev)
    optim = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    history = (torch.rand(users, length, device=dev) ** 2 * items).long()
    n = min(opt.steps, 20)
    for it in range(opt.steps):
        if it == opt.steps - n:
            if dev.type == "cuda":
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        seq = history[torch.randint(0, users, (batch,), device=dev)]
        inp, labels, where, target = corrupt(seq, k, items)
        with torch.autocast(dev.type, torch.bfloat16):
            h = model(inp)
            if "masked_only" in fix:
                h = h.gather(1, where.unsqueeze(-1).expand(-1, -1, d))
                labels = target
            loss = F.cross_entropy(model.scores(h).flatten(0, 1), labels.flatten(), ignore_index=-100)
        optim.zero_grad(set_to_none=True)
        loss.backward()
        optim.step()
        if it % 50 == 0:
            print(f"iter {it} loss {loss.item():.4f}", flush=True)
    if dev.type == "cuda":
        torch.cuda.synchronize()
    dt = time.perf_counter() - t0
    print(f"final loss {loss.item():.5f}")
    print(f"MEAN_STEP_MS {dt / n * 1e3:.3f}")


if __name__ == "__main__":
    main()
