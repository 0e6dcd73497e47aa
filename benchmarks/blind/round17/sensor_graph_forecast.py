"""Traffic speed forecasting: the sensor graph is learnt from node vectors, graph and time convolutions take turns."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class LearntGraph(nn.Module):
    """A = softmax(relu(E1 E2')), then the symmetric normalisation D^-1/2 (A + A') D^-1/2."""

    def __init__(self, nodes, rank, keep_matrix=True):
        super().__init__()
        self.e1 = nn.Parameter(torch.randn(nodes, rank) * 0.3)
        self.e2 = nn.Parameter(torch.randn(nodes, rank) * 0.3)
        self.keep_matrix = keep_matrix

    def forward(self):
        a = torch.softmax(F.relu(self.e1 @ self.e2.t()), dim=1)
        a = a + a.t()
        d_inv_sqrt = a.sum(1).rsqrt()
        if not self.keep_matrix:
            return d_inv_sqrt[:, None] * a * d_inv_sqrt[None, :]
        d = torch.diag(d_inv_sqrt)
        return d @ a @ d


class GatedTime(nn.Module):
    """Dilated causal convolution over time with a sigmoid gate; input [batch, nodes, time, channels]."""

    def __init__(self, channels, dilation):
        super().__init__()
        self.dilation = dilation
        self.now = nn.Linear(channels, 2 * channels)
        self.past = nn.Linear(channels, 2 * channels, bias=False)

    def forward(self, x):
        k = self.dilation
        return F.glu(self.now(x[:, :, k:]) + self.past(x[:, :, :-k]), dim=-1)


class GraphMix(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.own, self.around = nn.Linear(channels, channels), nn.Linear(channels, channels, bias=False)

    def forward(self, x, adj):
        b, n, t, c = x.shape
        near = torch.matmul(adj, x.reshape(b, n, t * c)).view(b, n, t, c)
        return F.relu(self.own(x) + self.around(near))


class SpeedNet(nn.Module):
    def __init__(self, nodes, channels, horizon, dilations, keep_matrix):
        super().__init__()
        self.graph = LearntGraph(nodes, 16, keep_matrix)
        self.start = nn.Linear(2, channels)
        self.time = nn.ModuleList(GatedTime(channels, d) for d in dilations)
        self.space = nn.ModuleList(GraphMix(channels) for _ in dilations)
        self.end = nn.Sequential(nn.Linear(channels, 4 * channels), nn.ReLU(), nn.Linear(4 * channels, horizon))

    def forward(self, x):
        adj = self.graph()
        h = self.start(x)
        for t, s in zip(self.time, self.space):
            h = t(h)
            h = h + s(h, adj)
        return self.end(h[:, :, -1])


def simulate(nodes, steps, seed=0):
    g = torch.Generator().manual_seed(seed)
    clock = torch.arange(steps) / 288.0
    phase, depth = torch.rand(nodes, 1, generator=g), 5 + 20 * torch.rand(nodes, 1, generator=g)
    speed = 60 - depth * torch.sin(2 * torch.pi * (clock + phase)).relu() + torch.randn(nodes, steps, generator=g)
    speed = (speed - speed.mean()) / speed.std()
    return torch.stack([speed, (clock % 1.0).expand(nodes, -1)], -1)


class Windows:
    def __init__(self, series, past, horizon, batch):
        self.view = series.unfold(1, past + horizon, 1)          # nodes, starts, features, window
        self.past, self.batch = past, batch

    def draw(self):
        pick = torch.randint(0, self.view.shape[1], (self.batch,), device=self.view.device)
        w = self.view[:, pick].permute(1, 0, 3, 2)
        return w[:, :, :self.past].contiguous(), w[:, :, self.past:, 0].contiguous()


def masked_mae(pred, goal):
    return (pred - goal).abs().mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=380)
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--fix", default="", help="scale")
    opt = ap.parse_args()
    gpu = opt.device == "cuda"
    nodes, channels, batch, days = (8192, 64, 16, 10) if gpu else (768, 12, 3, 6)
    torch.manual_seed(0)
    source = Windows(simulate(nodes, 288 * days).to(opt.device), 13, 12, batch)
    net = SpeedNet(nodes, channels, 12, (4, 8), opt.fix != "scale").to(opt.device)
    adam = torch.optim.Adam(net.parameters(), lr=2e-3, fused=True)
    marks, losses = [], []
    for i in range(opt.steps):
        if i in (opt.steps // 3,):
            if gpu:
                torch.cuda.synchronize()
            marks.append(time.perf_counter())
        past, future = source.draw()
        loss = masked_mae(net(past), future)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        losses.append(loss.detach())
    if gpu:
        torch.cuda.synchronize()
    marks.append(time.perf_counter())
    losses = torch.stack(losses)
    print(f"mae first 20 {losses[:20].mean():.4f} last 20 {losses[-20:].mean():.4f}")
    print(f"mean step ms {(marks[1] - marks[0]) * 1e3 / (opt.steps - opt.steps // 3):.3f}")


if __name__ == "__main__":
    main()
