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
MAX, VOCAB, D, B = 160, 1000, 48, 16
lengths = torch.randint(6, 31, (640,))
lengths[0] = MAX
ids = torch.randint(1, VOCAB, (640, MAX))
ids[torch.arange(MAX)[None] >= lengths[:, None]] = 0
labels = torch.randint(0, 4, (640,))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, D, padding_idx=0)
        self.pos = nn.Parameter(torch.randn(MAX, D) * 0.02)
        self.layer = nn.TransformerEncoderLayer(D, 4, 96, dropout=0.0, batch_first=True)
        self.out = nn.Linear(D, 4)

    def forward(self, ids):
        pad = ids == 0
        h = self.layer(self.emb(ids) + self.pos[:ids.shape[1]], src_key_padding_mask=pad)
        h = h.masked_fill(pad[..., None], 0.0).sum(1) / (~pad).sum(1, keepdim=True)
        return self.out(h)


model = Classifier()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    s = slice((step % 40) * B, (step % 40 + 1) * B)
    batch = ids[s, :int(lengths[s].max())] if args.fix else ids[s]
    loss = F.cross_entropy(model(batch), labels[s])
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
