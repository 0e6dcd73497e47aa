"""Exact nearest-neighbour search over a resident corpus of embeddings; a step answers one small batch of queries."""
import argparse
import time

import torch
import torch.nn.functional as F


class Corpus:
    def __init__(self, n, dim, shards, dev, keep):
        g = torch.Generator(device=dev).manual_seed(0)
        self.shards = []
        for _ in range(shards):
            x = torch.empty(n // shards, keep, dtype=torch.bfloat16, device=dev)
            for part in x.split(65536):
                part.copy_(F.normalize(torch.randn(len(part), dim, device=dev, generator=g)[:, :keep], dim=-1))
            self.shards.append(x)
        self.size, self.keep = n // shards, keep

    def search(self, q, k):
        q = F.normalize(q[:, : self.keep].float(), dim=-1).to(torch.bfloat16)
        scores, ids = [], []
        for s, x in enumerate(self.shards):
            v, i = torch.topk(q @ x.T, k, dim=1)
            scores.append(v)
            ids.append(i + s * self.size)
        v, j = torch.topk(torch.cat(scores, 1), k, dim=1)
        return v, torch.cat(ids, 1).gather(1, j)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--fix", default="", help="matryoshka (half the dimensions), bigger_batch (8 times the queries)")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    a = ap.parse_args()
    fix = set(filter(None, a.fix.split(",")))
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(1)
    n, dim, shards = (800, 32, 2) if a.tiny else (8_000_000, 2048, 8)
    corpus = Corpus(n, dim, shards, dev, dim // 2 if "matryoshka" in fix else dim)
    bs = 64 if "bigger_batch" in fix else 8
    window = min(a.steps, max(3, a.steps // 3))
    waiting = None
    with torch.inference_mode():
        for step in range(a.steps):
            if step == a.steps - window:
                if dev.type == "cuda":
                    torch.cuda.synchronize()
                t0 = time.perf_counter()
            q = torch.randn(bs, dim)
            if dev.type == "cuda":
                q = q.pin_memory().to(dev, non_blocking=True)
            v, i = corpus.search(q, 100)
            if waiting is not None:                     # answer the former batch while this one runs
                done, host = waiting
                if done is not None:
                    done.synchronize()
                best = host[0, 0]
            host = i.to("cpu", non_blocking=True)
            done = torch.cuda.Event() if dev.type == "cuda" else None
            if done is not None:
                done.record()
            waiting = (done, host)
            if step % 100 == 99:
                print(f"batch {step + 1} nearest {int(best)}")
    if dev.type == "cuda":
        torch.cuda.synchronize()
    ms = (time.perf_counter() - t0) / window * 1e3
    print(f"QUERIES_PER_S {bs / ms * 1e3:.0f}")
    print(f"MEAN_STEP_MS {ms:.3f}")
