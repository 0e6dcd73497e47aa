"""Passage search endpoint: hashed n-gram query encoder, click-weighted dense index, exact top-k.

The driver below replays a synthetic query stream in micro-batches, as the batching front end hands them over.
"""
import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F


@dataclass
class Sizes:
    passages: int
    dim: int
    buckets: int
    batch: int
    words: int = 24


SIZES = {"cpu": Sizes(48_000, 512, 50_000, 64), "cuda": Sizes(2_000_000, 768, 500_000, 512)}


class QueryEncoder(nn.Module):
    """Mean of bucket vectors, then two residual layers."""

    def __init__(self, buckets, dim):
        super().__init__()
        self.words = nn.EmbeddingBag(buckets, dim, mode="mean")
        self.fc1 = nn.Linear(dim, dim)
        self.fc2 = nn.Linear(dim, dim)

    def forward(self, ids):
        x = self.words(ids)
        x = x + F.relu(self.fc1(x))
        x = x + F.relu(self.fc2(x))
        return F.normalize(x, dim=-1)


def fake_corpus(n, dim, seed=7):
    """What the nightly export leaves on disk: float32 passage vectors and a click counter for each."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((n, dim), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    clicks = rng.zipf(1.6, size=n).clip(0, 10_000)
    return vectors, clicks


class PassageIndex:
    def __init__(self, vectors, clicks, device, fixes):
        boost = 1.0 + 0.05 * np.log1p(clicks)
        if "f32_index" in fixes:
            boost = boost.astype(np.float32)
        weighted = vectors * boost[:, None]
        self.matrix = torch.from_numpy(weighted).to(device)
        self.sorted = "unsorted" not in fixes

    def __len__(self):
        return self.matrix.shape[0]

    def lookup(self, queries, k):
        scores = queries.to(self.matrix.dtype) @ self.matrix.T
        best = scores.topk(k, dim=1, sorted=self.sorted)
        return best.indices, best.values


class SearchService:
    def __init__(self, encoder, index, k, device):
        self.encoder, self.index, self.k, self.device = encoder.eval(), index, k, device
        self.served = 0

    @torch.inference_mode()
    def handle(self, token_ids):
        ids = torch.from_numpy(token_ids).to(self.device)
        hits, scores = self.index.lookup(self.encoder(ids), self.k)
        self.served += len(token_ids)
        return {"ids": hits.cpu().numpy(), "scores": scores.float().cpu().numpy()}


def query_stream(sizes, seed=3):
    rng = np.random.default_rng(seed)
    while True:
        ids = rng.zipf(1.3, size=(sizes.batch, sizes.words)) % sizes.buckets
        yield ids.astype(np.int64)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=360)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--topk", type=int, default=50)
    parser.add_argument("--fix", default="", help="f32_index, unsorted")
    args = parser.parse_args()

    torch.manual_seed(0)
    sizes = SIZES[args.device]
    index = PassageIndex(*fake_corpus(sizes.passages, sizes.dim), args.device, args.fix.split(","))
    encoder = QueryEncoder(sizes.buckets, sizes.dim).to(args.device)
    service = SearchService(encoder, index, args.topk, args.device)

    checksum, latencies = 0.0, []
    stream = query_stream(sizes)
    for _ in range(args.steps):
        batch = next(stream)
        start = time.perf_counter()
        answer = service.handle(batch)
        latencies.append(time.perf_counter() - start)
        checksum += float(answer["scores"][:, 0].mean())

    tail = latencies[args.steps // 3:]
    print(f"passages {len(index)} served {service.served} top-1 mean {checksum / args.steps:.5f}")
    print(f"p50 {np.percentile(tail, 50) * 1e3:.2f} p95 {np.percentile(tail, 95) * 1e3:.2f}")
    print(f"mean step ms {np.mean(tail) * 1e3:.3f}")


if __name__ == "__main__":
    main()
