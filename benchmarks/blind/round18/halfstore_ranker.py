"""Candidate ranking server. The checkpoint is published in float16 to halve the download; scores are float32."""
import argparse
import io
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Dense(nn.Module):
    """Linear layer whose weights stay as they were published."""

    def __init__(self, cin, cout, dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(cout, cin, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(cout, dtype=dtype))

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))


class Cross(nn.Module):
    """DCN-v2 cross layer."""

    def __init__(self, dim, dtype):
        super().__init__()
        self.dense = Dense(dim, dim, dtype)

    def forward(self, x0, x):
        return x0 * self.dense(x) + x


class Ranker(nn.Module):
    def __init__(self, users, items, dim, crosses, widths, dtype):
        super().__init__()
        self.user = nn.Embedding(users, dim // 4, dtype=dtype)
        self.item = nn.Embedding(items, dim // 4, dtype=dtype)
        self.context = Dense(dim // 8, dim // 2, dtype)
        self.crosses = nn.ModuleList(Cross(dim, dtype) for _ in range(crosses))
        sizes = [dim, *widths]
        self.deep = nn.ModuleList(Dense(a, b, dtype) for a, b in zip(sizes, sizes[1:]))
        self.head = Dense(sizes[-1] + dim, 1, dtype)

    def forward(self, user, items, context):
        c = self.context(context)
        u = self.user(user).to(c.dtype)
        x0 = torch.cat([u.expand(len(items), -1), self.item(items).to(c.dtype), c], dim=1)
        x = x0
        for cross in self.crosses:
            x = cross(x0, x)
        h = x0
        for dense in self.deep:
            h = F.relu(dense(h))
        return self.head(torch.cat([h, x], 1)).squeeze(1)


def publish(shape, seed=0):
    """Train job stand-in: a float16 state dict as bytes."""
    torch.manual_seed(seed)
    model = Ranker(*shape, torch.float16)
    for name, p in model.named_parameters():
        if p.dim() == 2 and "user" not in name and "item" not in name:
            p.data.copy_(torch.randn(p.shape) / math.sqrt(p.shape[1]))
        elif p.dim() == 2:
            p.data.copy_(0.5 * torch.randn(p.shape))
        else:
            p.data.zero_()
    blob = io.BytesIO()
    torch.save(model.state_dict(), blob)
    return blob.getvalue()


def load(blob, shape, device, fix):
    model = Ranker(*shape, torch.float16)
    model.load_state_dict(torch.load(io.BytesIO(blob), map_location="cpu"))
    model = model.to(device).eval().requires_grad_(False)
    return model.float() if fix == "cast_once" else model


def requests(users, items, features, candidates, seed=1):
    rng = np.random.default_rng(seed)
    while True:
        yield (rng.integers(users, size=1), rng.integers(items, size=candidates),
               rng.standard_normal((candidates, features), dtype=np.float32))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="cast_once, half_compute")
    ap.add_argument("--device", default="cpu")
    args = ap.parse_args()
    gpu = args.device == "cuda"
    shape = (200_000, 500_000, 2048, 6, (8192, 4096, 1024)) if gpu else (20_000, 50_000, 1024, 4, (4096, 2048, 512))
    candidates = 256 if gpu else 24
    model = load(publish(shape), shape, args.device, args.fix)
    compute = torch.float16 if args.fix == "half_compute" else torch.float32
    feed = requests(shape[0], shape[1], shape[2] // 8, candidates)
    spent, check = [], 0.0
    with torch.inference_mode():
        for _ in range(args.steps):
            user, items, context = next(feed)
            start = time.perf_counter()
            scores = model(torch.from_numpy(user).to(args.device), torch.from_numpy(items).to(args.device),
                           torch.from_numpy(context).to(args.device, compute))
            top = scores.float().topk(10).values.cpu()
            spent.append(time.perf_counter() - start)
            check += top.mean().item()
    spent = np.array(spent[args.steps // 3:]) * 1e3
    print(f"mean top-10 score {check / args.steps:.4f}  p99 {np.percentile(spent, 99):.1f} ms")
    print(f"mean step ms {spent.mean():.3f}")


if __name__ == "__main__":
    main()
