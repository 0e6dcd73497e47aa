import argparse
import time

import torch
from torch import nn

torch.set_num_threads(1)

N_ROWS, N_FEATS = 250_000, 160


def load_columns(gen):
    """Columns come one at a time out of the store, like reading a parquet file."""
    for j in range(N_FEATS):
        col = torch.randn(N_ROWS, generator=gen)
        if j % 5 == 0:
            col = col.abs().log1p()
        yield (col - col.mean()) / col.std()


class Table:
    def __init__(self, gen, fix):
        cols = list(load_columns(gen))
        w = torch.randn(N_FEATS, generator=gen) * (torch.rand(N_FEATS, generator=gen) < 0.2)
        score = sum(wi * c for wi, c in zip(w, cols))
        self.y = (score + torch.randn(N_ROWS, generator=gen) > 0.5).float()
        self.x = torch.stack(cols)
        if fix:
            self.x = self.x.t().contiguous()
        self.by_row = fix

    def batch(self, idx):
        rows = self.x[idx] if self.by_row else self.x[:, idx].t()
        return rows, self.y[idx]


def build_model():
    return nn.Sequential(nn.Linear(N_FEATS, 96), nn.ReLU(), nn.Dropout(0.1),
                         nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 1))


def main():
    ap = argparse.ArgumentParser(description="default risk MLP")
    ap.add_argument("--steps", type=int, default=1000)
    ap.add_argument("--batch-size", type=int, default=1024)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()

    gen = torch.Generator().manual_seed(2024)
    table = Table(gen, args.fix)
    torch.manual_seed(0)
    model = build_model()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    lossf = nn.BCEWithLogitsLoss()

    order = torch.randperm(N_ROWS, generator=gen)
    cursor, tot, avg = 0, [], None
    for step in range(args.steps):
        t0 = time.perf_counter()
        if cursor + args.batch_size > N_ROWS:
            order, cursor = torch.randperm(N_ROWS, generator=gen), 0
        x, y = table.batch(order[cursor:cursor + args.batch_size])
        cursor += args.batch_size
        loss = lossf(model(x).squeeze(1), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        val = loss.item()
        avg = val if avg is None else 0.98 * avg + 0.02 * val
        tot.append(time.perf_counter() - t0)
        if step % 200 == 0:
            print(f"step {step} loss {val:.4f} avg {avg:.4f}")
    tail = tot[len(tot) // 3:]
    print(f"loss {avg:.5f}")
    print(f"mean step ms {sum(tail) / len(tail) * 1e3:.3f}")


if __name__ == "__main__":
    main()
