import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)
VOCAB, D, T, B = 4000, 64, 64, 8


class MaskedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, D)
        self.layer = nn.TransformerEncoderLayer(D, 4, 128, dropout=0.0, batch_first=True)
        self.out = nn.Linear(D, VOCAB)

    def forward(self, ids, masked):
        h = self.layer(self.emb(ids))
        if args.fix:
            return self.out(h[masked])
        return self.out(h)[masked]


model = MaskedLM()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
corpus = torch.randint(1, VOCAB, (160, T))
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    ids = corpus[(step % 20) * B:(step % 20 + 1) * B]
    masked = torch.rand(B, T) < 0.15
    logits = model(ids.masked_fill(masked, 0), masked)
    loss = F.cross_entropy(logits, ids[masked])
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
