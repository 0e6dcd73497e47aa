"""A search that asks the device, before every expansion, which candidates are still alive.

Truth: overhead / host-sync. `nonzero` and `.item()` wait until the queue is empty, and the device
then stands still while the host issues the next round. With the mask kept on the device nothing
waits: the matmuls alone are the step.
"""

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "host-sync"]]
ALSO = []
FIXES = ["no_sync"]
WIDTH = 4096  # wide enough that the host, where nothing waits, issues a round while another is computed


class Search(nn.Module):
    def __init__(self, width: int, rounds: int, waits: bool) -> None:
        super().__init__()
        self.expand = nn.Linear(width, width, bias=False)
        self.rounds, self.waits = rounds, waits

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        best = 0.0
        for _ in range(self.rounds):
            x = self.expand(x)
            score = x[:, 0].float().abs()
            alive = score > score.mean()
            if self.waits:
                rows = alive.nonzero().squeeze(1)
                penalty = torch.full_like(score, 0.5).index_fill_(0, rows, 1.0)
                best = max(best, score.max().item())
            else:
                penalty = torch.where(alive, 1.0, 0.5)
            x[:, 0] *= penalty.to(x.dtype)
        return x


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    width, rounds = (WIDTH, 32) if size == "gpu" else (32, 4)
    search = Search(width, rounds, waits=fix != "no_sync").to(device, torch.bfloat16)
    start = torch.randn(width, width, device=device, dtype=torch.bfloat16)

    @torch.no_grad()
    def step() -> torch.Tensor:
        return search(start)

    return step


if __name__ == "__main__":
    main(make)
