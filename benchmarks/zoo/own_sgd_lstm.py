"""A word spotter: one LSTM over the sound, a small head for each of 48 words, and SGD written by hand.

Truth: overhead / launch-bound. No optimizer object: a loop over 200 small parameters with six ops each,
after 48 heads forward and backward one by one. Thousands of kernels of two microseconds, issued slower
than they run. The update over lists (`torch._foreach_*`) saves its part, a CUDA graph nearly all.
"""

import torch
from fixclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "launch-bound"]]
ALSO = []
FIXES = ["foreach_update", "cuda_graph"]
RATE, MOMENTUM, DECAY, LIMIT = 1e-2, 0.9, 1e-4, 0.5


class Spotter(nn.Module):
    def __init__(self, width: int, words: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(40, width, batch_first=True)
        self.heads = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 32), nn.Tanh(), nn.Linear(32, 1)) for _ in range(words)]
        )

    def forward(self, sound: torch.Tensor) -> list[torch.Tensor]:
        last = self.lstm(sound)[0][:, -1]
        return [head(last)[:, 0] for head in self.heads]


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, length, width, words = (64, 32, 128, 48) if size == "gpu" else (2, 4, 8, 3)
    model = Spotter(width, words).to(device)
    parameters = list(model.parameters())
    speeds = [torch.zeros_like(parameter) for parameter in parameters]
    sound = torch.randn(batch, length, 40, device=device)
    spoken = torch.randint(2, (words, batch), device=device).float()

    @torch.no_grad()
    def update() -> None:
        for parameter, speed in zip(parameters, speeds, strict=True):
            slope = parameter.grad + DECAY * parameter
            slope.clamp_(-LIMIT, LIMIT)
            speed.mul_(MOMENTUM).add_(slope)
            parameter.sub_(RATE * speed)
            parameter.grad = None

    @torch.no_grad()
    def update_lists() -> None:
        slopes = torch._foreach_add([p.grad for p in parameters], parameters, alpha=DECAY)
        torch._foreach_clamp_max_(slopes, LIMIT)
        torch._foreach_clamp_min_(slopes, -LIMIT)
        torch._foreach_mul_(speeds, MOMENTUM)
        torch._foreach_add_(speeds, slopes)
        torch._foreach_sub_(parameters, speeds, alpha=RATE)
        for parameter in parameters:
            parameter.grad = None

    def step() -> None:
        heard = model(sound)
        losses = [
            nn.functional.binary_cross_entropy_with_logits(said, truth)
            for said, truth in zip(heard, spoken, strict=True)
        ]
        torch.stack(losses).sum().backward()
        if fix == "foreach_update":
            update_lists()
        else:
            update()

    return captured(step) if fix == "cuda_graph" and device == "cuda" else step


def captured(step: Step) -> Step:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


if __name__ == "__main__":
    main(make, FIXES, steps=400)
