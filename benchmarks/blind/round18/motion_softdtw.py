"""Motion retrieval: clips of joint angles are embedded frame by frame and compared by soft dynamic time warping."""
import argparse
import time

import torch
from torch import nn
import torch.nn.functional as F

BIG = 1e8


class SoftDTW(nn.Module):
    """Soft-DTW value of a cost matrix [batch, n, m] (Cuturi and Blondel, 2017)."""

    def __init__(self, gamma=0.1, diagonals=False):
        super().__init__()
        self.gamma, self.diagonals = gamma, diagonals

    def softmin(self, *values):
        return -self.gamma * torch.logsumexp(torch.stack(values) / -self.gamma, dim=0)

    def forward(self, cost):
        return self.by_diagonals(cost) if self.diagonals else self.by_cells(cost)

    def by_cells(self, cost):
        batch, n, m = cost.shape
        far = cost.new_full((batch,), BIG)
        above = [cost.new_zeros(batch)] + [far] * m
        for i in range(n):
            row = [far]
            for j in range(m):
                row.append(cost[:, i, j] + self.softmin(above[j], above[j + 1], row[j]))
            above = row
        return above[m]

    def by_diagonals(self, cost):
        batch, n, m = cost.shape
        # skewed[:, d, i] is the cost of cell (i, d - i)
        d, i = torch.arange(n + m - 1, device=cost.device)[:, None], torch.arange(n, device=cost.device)[None, :]
        inside = ((d - i) >= 0) & ((d - i) < m)
        skewed = torch.where(inside, cost[:, i, (d - i).clamp(0, m - 1)], BIG)
        before = cost.new_full((batch, n + 1), BIG)
        before[:, 0] = 0.0
        last = cost.new_full((batch, n + 1), BIG)
        for step in skewed.unbind(1):
            here = step + self.softmin(before[:, :-1], last[:, :-1], last[:, 1:])
            before, last = last, F.pad(here, (1, 0), value=BIG)
        return last[:, n]


class FrameEncoder(nn.Module):
    def __init__(self, joints, width, dim):
        super().__init__()
        self.conv1 = nn.Conv1d(joints, width, 5, padding=2)
        self.conv2 = nn.Conv1d(width, width, 5, padding=2)
        self.out = nn.Linear(width, dim)

    def forward(self, clip):
        h = F.gelu(self.conv1(clip.mT))
        h = h + F.gelu(self.conv2(h))
        return F.normalize(self.out(h.mT), dim=-1)


class Motions:
    """Variations on one routine: slow waves per joint; a clip plays one of them at an uneven pace with noise."""

    def __init__(self, motions, joints, seed=9):
        g = torch.Generator().manual_seed(seed)
        self.freq = 1 + 5 * torch.rand(motions, joints, 3, generator=g)
        self.freq = self.freq[:1] + 0.1 * (self.freq - self.freq[:1])
        self.phase = 6.28 * torch.rand(1, joints, 3, generator=g) + 0.3 * torch.randn(motions, joints, 3, generator=g)
        self.g = g

    def play(self, which, frames):
        pace = torch.rand(len(which), frames, generator=self.g) + 0.2
        t = (pace.cumsum(1) / pace.sum(1, keepdim=True))[:, :, None, None]
        wave = torch.sin(6.28 * t * self.freq[which][:, None] + self.phase[which][:, None]).sum(-1)
        return wave + 0.5 * torch.randn(wave.shape, generator=self.g)

    def triplets(self, batch, n, m):
        a = torch.randint(len(self.freq), (batch,), generator=self.g)
        b = (a + torch.randint(1, len(self.freq), (batch,), generator=self.g)) % len(self.freq)
        return self.play(a, n), self.play(a, m), self.play(b, m)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="diagonals")
    ap.add_argument("--device", default="cpu")
    a = ap.parse_args()
    cuda = a.device == "cuda"
    batch, n, m, joints, width, dim = (512, 64, 64, 66, 512, 128) if cuda else (24, 20, 18, 24, 64, 32)
    torch.manual_seed(0)
    motions = Motions(60, joints)
    encoder = FrameEncoder(joints, width, dim).to(a.device)
    sdtw = SoftDTW(diagonals=a.fix == "diagonals")
    adam = torch.optim.Adam(encoder.parameters(), lr=5e-4, fused=True)
    margin, curve = 4.0, []
    for it in range(a.steps):
        if it == a.steps // 3:
            if cuda:
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        anchor, same, other = (v.to(a.device, non_blocking=True) for v in motions.triplets(batch, n, m))
        ea, es, eo = encoder(anchor), encoder(same), encoder(other)
        cost = 1 - torch.cat([ea @ es.mT, ea @ eo.mT])
        near, distant = sdtw(cost).chunk(2)
        loss = F.relu(near - distant + margin).mean()
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        adam.step()
        curve.append(loss.detach())
    if cuda:
        torch.cuda.synchronize()
    spent = time.perf_counter() - t0
    print(f"triplet loss first {curve[0].item():.5f} last {torch.stack(curve[-20:]).mean().item():.5f}")
    print(f"mean step ms {spent * 1e3 / (a.steps - a.steps // 3):.3f}")


if __name__ == "__main__":
    main()
