import argparse
import collections
import time

import torch
import torch.nn as nn

torch.set_num_threads(1)


class GRULM(nn.Module):
    def __init__(self, vocab, dim=64, hidden=96):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, hidden, batch_first=True)
        self.proj = nn.Linear(hidden, vocab)

    def forward(self, x):
        h, _ = self.rnn(self.emb(x))
        return self.proj(h)


class Meter:
    """running averages, flushed every `every` steps"""

    def __init__(self, every):
        self.every, self.n, self.sums = every, 0, collections.defaultdict(float)

    def update(self, **kw):
        self.n += 1
        for k, v in kw.items():
            self.sums[k] += v

    def flush(self, step):
        if step % self.every == 0:
            print(f"step {step}: " + " ".join(f"{k}={v / self.n:.4f}" for k, v in self.sums.items()))
            self.n = 0
            self.sums.clear()


def accuracy_at(logits, target, k, fix):
    if fix:
        top = logits.topk(k, dim=-1).indices
    else:
        top = logits.argsort(dim=-1, descending=True)[:, :k]
    return (top == target[:, None]).any(1).float().mean()


def corpus(vocab, n):
    ranks = torch.arange(1, vocab + 1).float()
    toks = torch.multinomial(1 / ranks, n, replacement=True)
    toks[1::2] = (toks[::2][: len(toks[1::2])] * 7 + 3) % vocab
    return toks


def main(a):
    torch.manual_seed(1)
    V, B, T = 3000, 8, 12
    toks = corpus(V, 200_000)
    model = GRULM(V)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    meter = Meter(every=200)
    spent = []
    for step in range(1, a.steps + 1):
        t0 = time.monotonic()
        start = torch.randint(0, len(toks) - T - 1, (B,))
        chunk = toks[start[:, None] + torch.arange(T + 1)]
        logits = model(chunk[:, :-1]).flatten(0, 1)
        tgt = chunk[:, 1:].flatten()
        loss = nn.functional.cross_entropy(logits, tgt)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        acc5 = accuracy_at(logits.detach(), tgt, 5, a.fix)
        meter.update(loss=loss.item(), acc5=acc5.item())
        meter.flush(step)
        spent.append(time.monotonic() - t0)
    spent = spent[a.steps // 3:]
    print("loss %.5f" % loss.item())
    print("mean step ms %.3f" % (1e3 * sum(spent) / len(spent)))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=500)
    ap.add_argument("--fix", action="store_true")
    main(ap.parse_args())
