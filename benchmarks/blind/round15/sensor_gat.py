"""Graph attention over a network of road sensors: estimate missing flow readings."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NODES = 420
FEATS = 24


def make_network(gen):
    pos = torch.rand(NODES, 2, generator=gen)
    dist = torch.cdist(pos, pos)
    linked = dist < 0.45
    return pos, linked


def make_readings(pos, n, gen):
    freq = torch.randn(n, 2, 4, generator=gen) * 4
    phase = torch.rand(n, 1, 4, generator=gen) * 6.28
    flow = torch.sin(torch.matmul(pos, freq) + phase).sum(-1)
    extra = torch.randn(n, NODES, FEATS - 4, generator=gen) * 0.3
    extra[..., 0] += flow ** 2
    return flow, extra


class AttentionLayer(nn.Module):
    def __init__(self, n_in, n_out, heads, split):
        super().__init__()
        self.heads, self.n_out, self.split = heads, n_out, split
        self.W = nn.Parameter(torch.empty(n_in, heads * n_out))
        self.a = nn.Parameter(torch.empty(heads, 2 * n_out))
        nn.init.xavier_uniform_(self.W, gain=1.414)
        nn.init.xavier_uniform_(self.a, gain=1.414)

    def scores(self, Wh):
        # Wh: heads, nodes, n_out
        if self.split:
            left = torch.einsum("hnf,hf->hn", Wh, self.a[:, :self.n_out])
            right = torch.einsum("hnf,hf->hn", Wh, self.a[:, self.n_out:])
            return F.leaky_relu(left.unsqueeze(2) + right.unsqueeze(1), 0.2)
        h, n, f = Wh.shape
        src = Wh.repeat_interleave(n, dim=1)
        dst = Wh.repeat(1, n, 1)
        pairs = torch.cat([src, dst], dim=2)
        e = torch.matmul(pairs, self.a.unsqueeze(2)).view(h, n, n)
        return F.leaky_relu(e, 0.2)

    def forward(self, x, linked):
        Wh = (x @ self.W).view(-1, self.heads, self.n_out).transpose(0, 1)
        e = self.scores(Wh).masked_fill(~linked, float("-inf"))
        out = torch.matmul(torch.softmax(e, dim=-1), Wh)
        return out.transpose(0, 1).reshape(-1, self.heads * self.n_out)


class SensorNet(nn.Module):
    def __init__(self, split):
        super().__init__()
        self.l1 = AttentionLayer(FEATS, 16, 4, split)
        self.l2 = AttentionLayer(64, 16, 2, split)
        self.out = nn.Linear(32 + FEATS, 1)

    def forward(self, x, linked):
        h = F.elu(self.l1(x, linked))
        h = F.elu(self.l2(h, linked))
        return self.out(torch.cat([h, x], dim=1)).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=110)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(3)

    pos, linked = make_network(gen)
    flow, extra = make_readings(pos, 200, gen)
    model = SensorNet(split=args.fix)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
    times = []
    for step in range(args.steps):
        t0 = time.perf_counter()
        i = step % len(flow)
        hidden = torch.rand(NODES, generator=gen) < 0.3
        seen = flow[i].masked_fill(hidden, 0.0)
        x = torch.cat([seen[:, None], hidden[:, None].float(), pos, extra[i]], dim=1)
        pred = model(x, linked)
        loss = F.mse_loss(pred[hidden], flow[i][hidden])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        times.append(time.perf_counter() - t0)
        if step % 20 == 0 or step == args.steps - 1:
            print(f"step {step} loss {loss.item():.5f}")
    tail = times[len(times) // 3:]
    print(f"mean step ms {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
