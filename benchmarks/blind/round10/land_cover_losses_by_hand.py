import argparse
import time

import torch

import land_cover_losses


def sync():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(step, seconds, warm):
    for i in range(warm):
        step(i)
    sync()
    t = time.perf_counter()
    for i in range(10):
        step(i)
    sync()
    n = max(30, int(seconds / ((time.perf_counter() - t) / 10)))
    t = time.perf_counter()
    for i in range(n):
        loss = step(i)
    sync()
    ms = (time.perf_counter() - t) / n * 1e3
    print(f"steps {n} last loss {loss.item():.4f}", flush=True)
    print(f"mean step ms {ms:.3f}", flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=6)
    ap.add_argument("--plain", action="store_true")
    ap.add_argument("--loss-only", action="store_true", help="compile the loss alone")
    a = ap.parse_args()

    tr = land_cover_losses.Trainer()
    tr.model.train()
    if not a.plain:
        tr.loss_fn = torch.compile(land_cover_losses.segmentation_loss, dynamic=False)
        if not a.loss_only:
            tr.model = torch.compile(tr.model, dynamic=False)
            tr.opt = torch.optim.AdamW(tr.model.parameters(), lr=3e-4, weight_decay=1e-2, fused=True)
    measure(tr.train_step, a.seconds, 15)
