"""Pre-training a 120M GPT (bf16 autocast, fused AdamW), with a safety checkpoint of model and optimizer every 20 steps.

Why: `torch.save` of 1.5 GB takes seconds of the host, in which nothing is issued; 19 of 20 steps are as they should be.
Trap: three steps under a profiler see nothing of it; the mean step is several times the median.
Fix: no_save: no checkpoint (an upper bound of writing it rarely or beside the training).
"""

import os
import tempfile

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["overhead", "host-work"]]
FIXES = ["no_save"]
TRUTH_STEPS = 80
SAVE_EVERY = 20


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn_in, self.attn_out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.attn_in(self.ln1(x)).chunk(3, -1))
        x = x + self.attn_out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocab, d, heads, layers, context):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(context, d)
        self.h = nn.ModuleList(Layer(d, heads) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe.weight[: idx.shape[1]]
        for layer in self.h:
            x = layer(x)
        return F.cross_entropy(self.lm_head(self.ln_f(x)).flatten(0, 1), targets.flatten())


def main():
    args = arguments(240, FIXES, cpu_steps=60)
    vocab, d, heads, layers, context, batch = (50304, 768, 12, 12, 1024, 12) if args.gpu else (64, 32, 2, 2, 16, 2)
    with torch.device(args.device):
        model = GPT(vocab, d, heads, layers, context)
    nn.init.normal_(model.wte.weight, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    corpus = torch.randint(0, vocab, (1_000_000 if args.gpu else 5000,), device=args.device)
    folder = tempfile.mkdtemp(prefix="lm_pretrain_")
    path = os.path.join(folder, "last.pt")
    clock = Clock(args.steps, SAVE_EVERY)
    for step in range(args.steps):
        start = torch.randint(0, len(corpus) - context - 1, (batch, 1), device=args.device)
        window = corpus[start + torch.arange(context + 1, device=args.device)]
        with torch.autocast(args.device.type, torch.bfloat16):
            loss = model(window[:, :-1], window[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) % SAVE_EVERY == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}")
            if args.fix != "no_save":
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
        clock.tick()
    clock.report()
    if os.path.exists(path):
        os.remove(path)
    os.rmdir(folder)


if __name__ == "__main__":
    main()
