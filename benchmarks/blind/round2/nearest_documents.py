"""Exact nearest-neighbour search: 16 queries a call against 24 million document vectors (768, bf16, 37 GB on the card), in
chunks of two million, the best document a chunk and then of all, read back.

Why: each call must read every vector once, and there is next to no arithmetic a byte. The memory roof.
Traps: it is "all matmul" by op, and the tensor cores are nearly idle; a sync at the end of each call that costs nothing.
No fix at this precision; the proof is the bytes a second printed at the end.
"""

import torch
from common import Clock, arguments

WALLS = [["bandwidth", "memory-roof"]]
FIXES = []
TRUTH_STEPS = 400


class Index:
    def __init__(self, documents, dim, chunks, device):
        self.chunks = []
        for _ in range(chunks):
            part = torch.empty(documents // chunks, dim, device=device, dtype=torch.bfloat16)
            self.chunks.append(part.normal_())
        self.size = documents // chunks

    def nearest(self, queries):
        best, where = [], []
        for number, chunk in enumerate(self.chunks):
            top, inside = (queries @ chunk.T).view(len(queries), -1, 1000).max(-1)
            top, block = top.max(-1)
            best.append(top)
            where.append(inside.gather(1, block[:, None])[:, 0] + block * 1000 + number * self.size)
        winner = torch.stack(best).argmax(0, keepdim=True)
        return torch.stack(where).gather(0, winner)[0]


@torch.inference_mode()
def main():
    args = arguments(2300, FIXES)
    documents, dim, chunks, count = (24_000_000, 768, 12, 16) if args.gpu else (20_000, 64, 4, 4)
    index = Index(documents, dim, chunks, args.device)
    queries = torch.randn(64, count, dim, device=args.device).bfloat16()
    clock = Clock(args.steps)
    found = set()
    for call in range(args.steps):
        found.update(index.nearest(queries[call % 64]).tolist())
        clock.tick()
    print(f"{len(found)} documents ever found")
    print(f"achieved {2 * documents * dim / clock.mean_ms / 1e6:.0f} GB/s of vectors alone")
    clock.report()


if __name__ == "__main__":
    main()
