"""Instruction tuning of a decoder-only LM: packed 2048-token samples, prompt tokens masked, pure bf16."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, d, heads, ff):
        super().__init__()
        self.h = heads
        self.n1, self.n2 = nn.RMSNorm(d, eps=1e-5), nn.RMSNorm(d, eps=1e-5)
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.o = nn.Linear(d, d, bias=False)
        self.gate, self.up = nn.Linear(d, ff, bias=False), nn.Linear(d, ff, bias=False)
        self.down = nn.Linear(ff, d, bias=False)

    def forward(self, x, cos, sin):
        b, n, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)

        def rope(t):
            a, c = t.chunk(2, -1)
            return t * cos + torch.cat([-c, a], -1) * sin
        y = F.scaled_dot_product_attention(rope(q), rope(k), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, n, d))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class LM(nn.Module):
    def __init__(self, vocab, d, layers, heads, ff):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(Block(d, heads, ff) for _ in range(layers))
        self.norm = nn.RMSNorm(d, eps=1e-5)
        self.head = nn.Linear(d, vocab, bias=False)
        self.hd = d // heads

    def forward(self, ids):
        t = torch.arange(ids.size(1), device=ids.device).float()
        f = 1.0 / 10000 ** (torch.arange(0, self.hd, 2, device=ids.device) / self.hd)
        a = torch.outer(t, f).repeat(1, 2)
        x = self.emb(ids)
        cos, sin = a.cos().to(x.dtype), a.sin().to(x.dtype)
        for b in self.blocks:
            x = b(x, cos, sin)
        return self.head(self.norm(x))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="compile")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    args = ap.parse_args()
    fix = set(filter(None, args.fix.split(",")))
    cuda = not args.cpu
    dev = torch.device("cuda" if cuda else "cpu")
    torch.manual_seed(0)
    cfg, bs, n = ((256, 32, 2, 2, 64), 2, 16) if args.tiny else ((32000, 4096, 5, 32, 11008), 8, 2048)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(dev):
        model = LM(*cfg)
        for p in model.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
    torch.set_default_dtype(torch.float32)
    if "compile" in fix:
        for b in model.blocks:
            b.compile(backend="inductor" if cuda else "aot_eager")
    opt = torch.optim.AdamW(model.parameters(), 1e-5, betas=(0.9, 0.95), fused=True)
    ids = torch.randint(0, cfg[0], (32 if cuda else 4, n + 1))
    prompt = torch.randint(n // 8, n // 3, (len(ids), 1))
    lab = torch.where(torch.arange(1, n + 1) < prompt, -100, ids[:, 1:])
    if cuda:
        ids, lab = ids.pin_memory(), lab.pin_memory()
    window = min(args.steps, max(3, args.steps // 3))
    for step in range(args.steps):
        if step == args.steps - window:
            if cuda:
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        k = step * bs % len(ids)
        x, y = ids[k:k + bs, :-1].to(dev, non_blocking=True), lab[k:k + bs].to(dev, non_blocking=True)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f}")
    if cuda:
        torch.cuda.synchronize()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / window * 1e3:.3f}")


if __name__ == "__main__":
    main()
