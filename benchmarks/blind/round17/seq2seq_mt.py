"""Small encoder-decoder for translation with a shared vocabulary and smoothed targets (teacher forcing)."""
import argparse
import math
import time

import torch
from torch import nn
import torch.nn.functional as F

PAD, BOS, EOS = 0, 1, 2


def toy_pairs(vocab, batch, src_len, device, seed=0):
    """Target = source shifted through a fixed permutation of the vocabulary, reversed."""
    gen = torch.Generator().manual_seed(seed)
    perm = torch.randperm(vocab - 3, generator=gen) + 3
    while True:
        src = torch.randint(3, vocab, (batch, src_len), generator=gen)
        body = perm[src - 3].flip(1)
        lens = torch.randint(src_len // 2, src_len + 1, (batch,), generator=gen)
        keep = torch.arange(src_len)[None] < lens[:, None]
        body = torch.where(keep, body, torch.full_like(body, PAD))
        bos = torch.full((batch, 1), BOS)
        yield src.to(device, non_blocking=True), torch.cat([bos, body], 1).to(device, non_blocking=True)


class Block(nn.Module):
    def __init__(self, d, heads, cross):
        super().__init__()
        self.heads = heads
        self.ln1, self.qkv, self.o1 = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        if cross:
            self.ln2, self.q, self.kv, self.o2 = nn.LayerNorm(d), nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d)
        self.ln3, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def split(self, x, n):
        b, t, c = x.shape
        return x.view(b, t, n, self.heads, c // n // self.heads).permute(2, 0, 3, 1, 4).unbind(0)

    def merge(self, x):
        return x.transpose(1, 2).flatten(2)

    def forward(self, x, memory=None):
        q, k, v = self.split(self.qkv(self.ln1(x)), 3)
        x = x + self.o1(self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=memory is not None)))
        if memory is not None:
            (q,), (k, v) = self.split(self.q(self.ln2(x)), 1), self.split(self.kv(memory), 2)
            x = x + self.o2(self.merge(F.scaled_dot_product_attention(q, k, v)))
        return x + self.down(F.relu(self.up(self.ln3(x))))


class Translator(nn.Module):
    def __init__(self, vocab, d, heads, layers, max_len):
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        self.pos = nn.Parameter(torch.randn(max_len, d) * 0.02)
        self.enc = nn.ModuleList(Block(d, heads, False) for _ in range(layers))
        self.dec = nn.ModuleList(Block(d, heads, True) for _ in range(layers))
        self.ln = nn.LayerNorm(d)
        nn.init.normal_(self.tok.weight, std=d ** -0.5)

    def forward(self, src, tgt):
        m = self.tok(src) + self.pos[:src.shape[1]]
        for blk in self.enc:
            m = blk(m)
        y = self.tok(tgt) + self.pos[:tgt.shape[1]]
        for blk in self.dec:
            y = blk(y, m)
        return F.linear(self.ln(y), self.tok.weight)


def cal_loss(logits, gold, eps):
    """Cross entropy against targets smoothed over the whole vocabulary, mean over non-pad tokens."""
    n_class = logits.size(-1)
    one_hot = F.one_hot(gold, n_class).float()
    soft = one_hot * (1 - eps) + eps / n_class
    log_prb = torch.log(F.softmax(logits, dim=-1) + 1e-9)
    loss = -(soft * log_prb).sum(dim=-1)
    non_pad = gold.ne(PAD)
    return loss.masked_fill(~non_pad, 0.0).sum() / non_pad.sum()


def cal_loss_builtin(logits, gold, eps):
    return F.cross_entropy(logits, gold, ignore_index=PAD, label_smoothing=eps)


def noam(step, d, warmup=400):
    return 2 * d ** -0.5 * min((step + 1) ** -0.5, (step + 1) * warmup ** -1.5)


def train(opt):
    dev = torch.device(opt.device)
    vocab, d, heads, layers, batch, length = (16000, 64, 4, 1, 16, 24) if dev.type == "cpu" else (32000, 512, 8, 6, 128, 64)
    torch.manual_seed(1)
    model = Translator(vocab, d, heads, layers, length + 1).to(dev)
    optim = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    sched = torch.optim.lr_scheduler.LambdaLR(optim, lambda s: noam(s, d))
    criterion = cal_loss_builtin if "ce" in opt.fix.split(",") else cal_loss
    sync = torch.cuda.synchronize if dev.type == "cuda" else (lambda: None)
    data = toy_pairs(vocab, batch, length, dev)
    began = None
    for step in range(opt.steps):
        if step == opt.steps // 3:
            sync()
            began = time.perf_counter()
        src, tgt = next(data)
        logits = model(src, tgt[:, :-1])
        loss = criterion(logits.flatten(0, 1), tgt[:, 1:].flatten(), opt.smoothing)
        optim.zero_grad(set_to_none=True)
        loss.backward()
        optim.step()
        sched.step()
        if step % 100 == 99:
            print(f"step {step + 1} loss {loss.item():.5f} ppl {math.exp(min(loss.item(), 20)):.1f}")
    sync()
    took = time.perf_counter() - began
    print(f"final loss {loss.item():.5f}")
    print(f"mean step ms {took * 1e3 / (opt.steps - opt.steps // 3):.3f}")


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=300)
    cli.add_argument("--device", default="cpu")
    cli.add_argument("--smoothing", type=float, default=0.1)
    cli.add_argument("--fix", default="", help="ce")
    train(cli.parse_args())
