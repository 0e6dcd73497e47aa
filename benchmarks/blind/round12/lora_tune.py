"""Low-rank adapter fine-tuning of a decoder-only language model (bf16 base, fp32 adapters)."""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class LoRALinear(nn.Module):
    def __init__(self, d_in, d_out, rank, alpha=32, factored=False):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in, dtype=torch.bfloat16).normal_(std=0.6 / math.sqrt(d_in)),
                                   requires_grad=False)
        self.lora_a = nn.Parameter(torch.randn(rank, d_in) / math.sqrt(d_in))
        self.lora_b = nn.Parameter(torch.randn(d_out, rank) * 1e-3)
        self.scale, self.factored = alpha / rank, factored

    def forward(self, x):
        a, b = self.lora_a.to(x.dtype), self.lora_b.to(x.dtype)
        if self.factored:
            return F.linear(x, self.weight) + F.linear(F.linear(x, a), b) * self.scale
        return F.linear(x, self.weight + self.scale * (b @ a))


def rotary(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Layer(nn.Module):
    def __init__(self, d, ff, heads, **kw):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = (nn.RMSNorm(d, dtype=torch.bfloat16).requires_grad_(False) for _ in range(2))
        self.q, self.k, self.v, self.o = (LoRALinear(d, d, **kw) for _ in range(4))
        self.gate, self.up, self.down = LoRALinear(d, ff, **kw), LoRALinear(d, ff, **kw), LoRALinear(ff, d, **kw)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        h = self.n1(x)
        q, k, v = (m(h).view(b, t, self.heads, -1).transpose(1, 2) for m in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(rotary(q, cos, sin), rotary(k, cos, sin), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    def __init__(self, vocab, d, ff, heads, layers, **kw):
        super().__init__()
        self.emb = nn.Embedding(vocab, d, dtype=torch.bfloat16).requires_grad_(False)
        self.layers = nn.ModuleList(Layer(d, ff, heads, **kw) for _ in range(layers))
        self.norm = nn.RMSNorm(d, dtype=torch.bfloat16).requires_grad_(False)
        self.head = nn.Linear(d, vocab, bias=False, dtype=torch.bfloat16).requires_grad_(False)
        self.hd = d // heads

    def forward(self, ids):
        pos = torch.arange(ids.size(1), device=ids.device, dtype=torch.float32)
        freq = 10000 ** (-torch.arange(0, self.hd, 2, device=ids.device) / self.hd)
        ang = pos[:, None] * freq
        cos, sin = ang.cos().bfloat16(), ang.sin().bfloat16()
        x = self.emb(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--fix", default="")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--cpu", action="store_true")
    a = p.parse_args()
    fixes = set(filter(None, a.fix.split(",")))
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(0)
    vocab, d, ff, heads, layers, rank, b, t = (64, 32, 64, 2, 2, 4, 2, 16) if a.tiny else \
        (32000, 4096, 11008, 32, 6, 16, 4, 1024)
    with dev:
        model = Decoder(vocab, d, ff, heads, layers, rank=rank, factored="factored" in fixes)
    trainable = [q for q in model.parameters() if q.requires_grad]
    print(f"trainable {sum(q.numel() for q in trainable) / 1e6:.2f}M of {sum(q.numel() for q in model.parameters()) / 1e6:.0f}M")
    opt = torch.optim.AdamW(trainable, 1e-4, weight_decay=0.0, fused=True)
    data = torch.randint(0, vocab, (256, t + 1), device=dev)

    n_timed = min(a.steps, 20)
    for step in range(a.steps):
        if step == a.steps - n_timed:
            if dev.type == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
        ids = data[step * b % 256:step * b % 256 + b]
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if dev.type == "cuda":
        torch.cuda.synchronize()
    dt = time.perf_counter() - start
    print(f"final loss {loss.item():.5f}")
    print(f"MEAN_STEP_MS {dt / n_timed * 1e3:.3f}")


if __name__ == "__main__":
    main()
