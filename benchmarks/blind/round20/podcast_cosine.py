"""Next podcast for a listener: a GRU over the last plays, cosine scores against sampled episodes of a big catalogue."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

FIXES = ("rows_first", "rows_sparse")


class Plays:
    """Listeners keep to a few shows; episodes of a show have neighbouring numbers."""

    def __init__(self, episodes, listeners, length, seed=17):
        rng = np.random.default_rng(seed)
        shows = rng.zipf(1.3, size=(listeners, 3)) % (episodes // 50)
        which = rng.integers(3, size=(listeners, length + 1))
        show = np.take_along_axis(shows, which, 1)
        self.items = torch.from_numpy(show * 50 + rng.integers(50, size=show.shape))
        self.gen = torch.Generator().manual_seed(seed)

    def batch(self, size):
        rows = torch.randint(len(self.items), (size,), generator=self.gen)
        items = self.items[rows]
        return items[:, :-1], items[:, -1]


class CosineRecommender(nn.Module):
    def __init__(self, episodes, dim, form):
        super().__init__()
        self.episode = nn.Embedding(episodes, dim, sparse=form == "rows_sparse")
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, dim)
        self.scale = nn.Parameter(torch.tensor(12.0))
        self.form = form

    def vectors(self, ids):
        """Unit vectors of the episodes."""
        if self.form:
            return F.normalize(self.episode(ids), dim=-1)
        unit = F.normalize(self.episode.weight, dim=-1)
        return F.embedding(ids, unit)

    def forward(self, past, candidates):
        h, _ = self.gru(self.vectors(past))
        user = F.normalize(self.out(h[:, -1]), dim=-1)
        return self.scale * user @ self.vectors(candidates).t()


def make_optimizers(model):
    dense = [p for n, p in model.named_parameters() if n != "episode.weight"]
    optimizers = [torch.optim.Adam(dense, lr=1e-3, fused=True)]
    if model.form == "rows_sparse":
        optimizers.append(torch.optim.SGD([model.episode.weight], lr=0.5))
    else:
        optimizers.append(torch.optim.SGD([model.episode.weight], lr=0.5, fused=True))
    return optimizers


def evaluate(model, plays, negatives):
    """Share of listeners whose next episode is first among the sampled ones."""
    with torch.no_grad():
        past, following = plays.batch(256)
        score = model(past, torch.cat([following, negatives]))
        return (score.argmax(1) == torch.arange(256)).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--fix", choices=FIXES)
    parser.add_argument("--size", choices=("cpu", "small"), default="cpu")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--negatives", type=int, default=1024)
    args = parser.parse_args()
    episodes, dim = (60_000, 64) if args.size == "cpu" else (5000, 16)
    torch.manual_seed(11)
    plays = Plays(episodes, 20_000, 12)
    model = CosineRecommender(episodes, dim, args.fix)
    optimizers = make_optimizers(model)

    started, total = 0.0, 0.0
    for step in range(args.steps):
        if step == args.steps // 3:
            started = time.perf_counter()
        past, following = plays.batch(args.batch)
        negatives = torch.randint(episodes, (args.negatives,), generator=plays.gen)
        score = model(past, torch.cat([following, negatives]))
        loss = F.cross_entropy(score, torch.arange(args.batch))
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        total += loss.item()
        if (step + 1) % 40 == 0:
            print(f"step {step + 1} loss {total / (step + 1):.4f}")
    seconds = time.perf_counter() - started
    negatives = torch.randint(episodes, (args.negatives,), generator=plays.gen)
    print(f"first of {args.negatives}: {evaluate(model, plays, negatives):.3f}")
    print(f"mean loss {total / args.steps:.6f}")
    print(f"mean step ms {seconds * 1e3 / (args.steps - args.steps // 3):.3f}")


if __name__ == "__main__":
    main()
