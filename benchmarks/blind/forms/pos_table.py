import argparse
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)
T, D, VOCAB = 64, 32, 100


def positions():
    table = torch.zeros(T, D)
    for pos in range(T):
        for i in range(0, D, 2):
            angle = pos / 10000 ** (i / D)
            table[pos, i] = math.sin(angle)
            table[pos, i + 1] = math.cos(angle)
    return table


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, D)
        self.layer = nn.TransformerEncoderLayer(D, 4, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(D, VOCAB)
        self.register_buffer("table", positions())
        self.mask = nn.Transformer.generate_square_subsequent_mask(T)

    def forward(self, ids):
        table = self.table if args.fix else positions()
        return self.out(self.layer(self.emb(ids) + table, src_mask=self.mask, is_causal=True))


model = TinyLM()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
tokens = torch.randint(0, VOCAB, (64, T + 1))
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    batch = tokens[(step % 16) * 4:(step % 16 + 1) * 4]
    loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
