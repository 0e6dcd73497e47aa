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
T, D, H, W = 1024, 32, 2, 64
i = torch.arange(T)
band = (i[:, None] >= i[None, :]) & (i[:, None] - i[None, :] <= W)
a, b = torch.arange(W)[:, None] + W, torch.arange(2 * W)[None, :]
local = ((a >= b) & (a - b <= W)).repeat(T // W, 1, 1)
local[0, :, :W] = False


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).view(len(x), T, 3, H, D // H).permute(2, 0, 3, 1, 4)
        if args.fix:
            q, k, v = (t.reshape(len(x), H, T // W, W, D // H) for t in (q, k, v))
            k, v = (torch.cat([F.pad(t, (0, 0, 0, 0, 1, 0))[:, :, :-1], t], 3) for t in (k, v))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=local).reshape(len(x), H, T, D // H)
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=band)
        return x + self.out(y.transpose(1, 2).reshape(x.shape))


emb, block, head = nn.Embedding(64, D), Block(), nn.Linear(D, 64)
opt = torch.optim.Adam([*emb.parameters(), *block.parameters(), *head.parameters()], lr=1e-3)
tokens = torch.randint(0, 64, (8, 1, T + 1))
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    batch = tokens[step % 8]
    loss = F.cross_entropy(head(block(emb(batch[:, :-1]))).flatten(0, 1), batch[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
