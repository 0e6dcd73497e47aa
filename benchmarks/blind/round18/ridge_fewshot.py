"""Few-shot classification of handwritten glyphs with a differentiable ridge-regression head (closed form per episode)."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Glyphs:
    """Random stroke-like prototypes per class; samples are shifted, scaled and noisy copies."""

    def __init__(self, classes, size, device, seed=5):
        g = torch.Generator().manual_seed(seed)
        coarse = torch.randn(classes, 1, size // 4, size // 4, generator=g)
        smooth = F.interpolate(coarse, size=(size, size), mode="bilinear", align_corners=False)
        self.proto = (smooth > 0.35).float().to(device)
        self.size = size

    def episodes(self, tasks, way, shot, query):
        n, device = shot + query, self.proto.device
        pick = torch.stack([torch.randperm(len(self.proto), device=device)[:way] for _ in range(tasks)])
        base = self.proto[pick].repeat_interleave(n, dim=1).flatten(0, 1)
        angle = 0.25 * torch.randn(len(base), device=device)
        shift = 0.1 * torch.randn(len(base), 2, 1, device=device)
        theta = torch.cat([torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], 1).view(-1, 2, 2), shift], 2)
        moved = F.grid_sample(base, F.affine_grid(theta, list(base.shape), align_corners=False), align_corners=False)
        images = (moved + 0.15 * torch.randn_like(moved)).view(tasks, way, n, 1, self.size, self.size)
        labels = torch.arange(way, device=device).view(1, way, 1).expand(tasks, way, n)
        cut = lambda v, part: v[:, :, part].flatten(1, 2)
        return (cut(images, slice(0, shot)), cut(labels, slice(0, shot)),
                cut(images, slice(shot, n)), cut(labels, slice(shot, n)))


def conv(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, 2, 1, bias=False), nn.BatchNorm2d(cout), nn.LeakyReLU(0.1))


class Embedding(nn.Module):
    def __init__(self, width, dim):
        super().__init__()
        self.body = nn.Sequential(conv(1, width), conv(width, 2 * width), conv(2 * width, 2 * width), nn.Flatten())
        self.out = nn.LazyLinear(dim)

    def forward(self, images):
        tasks, n = images.shape[:2]
        return self.out(self.body(images.flatten(0, 1))).view(tasks, n, -1)


class RidgeHead(nn.Module):
    def __init__(self, form=""):
        super().__init__()
        self.log_lambda = nn.Parameter(torch.tensor(3.0))
        self.scale, self.offset = nn.Parameter(torch.tensor(4.0)), nn.Parameter(torch.tensor(-0.5))
        self.form = form

    def fit(self, x, y):
        """W = argmin |x W - y|^2 + lambda |W|^2 for every episode; x [tasks, n, d], y [tasks, n, way]."""
        n, d = x.shape[1:]
        lam = self.log_lambda.exp()
        if self.form == "dual":
            gram = x @ x.mT + lam * torch.eye(n, device=x.device)
            return x.mT @ torch.linalg.solve(gram, y)
        a = x.mT @ x + lam * torch.eye(d, device=x.device)
        if self.form == "solve":
            return torch.linalg.solve(a, x.mT @ y)
        return torch.inverse(a) @ x.mT @ y

    def forward(self, support, targets, query):
        return self.scale * (query @ self.fit(support, targets)) + self.offset


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="dual or solve")
    ap.add_argument("--device", default="cpu")
    args = ap.parse_args()
    gpu = args.device == "cuda"
    tasks, way, shot, query, dim, width = (32, 20, 5, 10, 2048, 96) if gpu else (6, 5, 5, 5, 512, 12)
    torch.manual_seed(1)
    data = Glyphs(400, 28, args.device)
    embed, head = Embedding(width, dim).to(args.device), RidgeHead(args.fix).to(args.device)
    embed(data.episodes(1, 2, 1, 1)[0])
    opt = torch.optim.Adam([*embed.parameters(), *head.parameters()], lr=1e-3, fused=True)
    trace = []
    for step in range(args.steps):
        if step == args.steps // 3:
            if gpu:
                torch.cuda.synchronize()
            tic = time.perf_counter()
        xs, ys, xq, yq = data.episodes(tasks, way, shot, query)
        both = embed(torch.cat([xs, xq], dim=1))
        logits = head(both[:, :way * shot], F.one_hot(ys, way).float(), both[:, way * shot:])
        loss = F.cross_entropy(logits.flatten(0, 1), yq.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        trace.append(loss.detach())
    if gpu:
        torch.cuda.synchronize()
    toc = time.perf_counter()
    print(f"loss first {trace[0].item():.5f} last {torch.stack(trace[-20:]).mean().item():.4f}")
    print(f"mean step ms {(toc - tic) * 1e3 / (args.steps - args.steps // 3):.3f}")


if __name__ == "__main__":
    main()
