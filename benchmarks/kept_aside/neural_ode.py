"""A neural ODE trained through a hand-written Runge-Kutta solver: four small networks a solver step,
five solver steps, and back again.

Truth: the host. Hundreds of ops on 512x64 tensors, each a few microseconds on the device (1.4 ms in
all, of 13); all of the step is Python, autograd and launches. Compiling one solver step barely helps:
five compiled calls each way still cost the host about as much.

Fixes: compile: one solver step under torch.compile. cuda_graph: the whole training step captured.
fused: the optimizer alone, Adam(fused=True).
"""

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "launch-bound"]]
ALSO = []
FIXES = ["compile", "cuda_graph", "fused"]
COMPILED = ["compile"]


class Field(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return self.outer(torch.tanh(self.inner(y))) - 0.1 * y


class Solver(nn.Module):
    def __init__(self, field: Field, dt: float) -> None:
        super().__init__()
        self.field, self.dt = field, dt

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        k1 = self.field(y)
        k2 = self.field(y + 0.5 * self.dt * k1)
        k3 = self.field(y + 0.5 * self.dt * k2)
        k4 = self.field(y + self.dt * k3)
        return y + self.dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    rows, width, hidden, steps = (512, 64, 128, 5) if size == "gpu" else (8, 4, 8, 2)
    solver = Solver(Field(width, hidden), 0.1).to(device)
    advance = torch.compile(solver) if fix == "compile" else solver
    kind = {"fused": fix == "fused" or None, "capturable": fix == "cuda_graph"}
    optimizer = torch.optim.Adam(solver.parameters(), lr=1e-3, **kind)
    start = torch.randn(rows, width, device=device)
    path = torch.randn(steps, rows, width, device=device)

    def step() -> None:
        optimizer.zero_grad()
        y, loss = start, torch.zeros((), device=device)
        for i in range(steps):
            y = advance(y)
            loss = loss + (y - path[i]).abs().mean()
        loss.backward()
        optimizer.step()

    return capture(step) if fix == "cuda_graph" else step


def capture(step: Step) -> Step:
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
    main(make)
