"""A character model written with `nn.LSTMCell`, two cells deep, a Python loop over 96 characters.

Truth: overhead / launch-bound. Each character is a handful of small kernels, forward and backward,
which wait for the host one after the other. `nn.LSTM` runs the same recurrence in one call.
"""

import torch
from fixclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "launch-bound"]]
ALSO = []
FIXES = ["lstm", "cuda_graph"]


class Speller(nn.Module):
    def __init__(self, letters: int, width: int, whole: bool) -> None:
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.whole = nn.LSTM(width, width, 2, batch_first=True) if whole else None
        self.cells = nn.ModuleList([nn.LSTMCell(width, width) for _ in range(0 if whole else 2)])
        self.head = nn.Linear(width, letters)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.letters(text)
        if self.whole is not None:
            return self.head(self.whole(x)[0])
        nothing = torch.zeros_like(x[:, 0])
        memory = [(nothing, nothing) for _ in self.cells]
        outputs = []
        for t in range(text.shape[1]):
            hidden = x[:, t]
            for layer, cell in enumerate(self.cells):
                memory[layer] = cell(hidden, memory[layer])
                hidden = memory[layer][0]
            outputs.append(self.head(hidden))
        return torch.stack(outputs, 1)


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, length, letters, width = (32, 96, 96, 256) if size == "gpu" else (2, 6, 16, 8)
    model = Speller(letters, width, whole=fix == "lstm").to(device)
    graph = fix == "cuda_graph"
    optimizer = torch.optim.Adam(
        model.parameters(), lr=2e-3, fused=True, capturable=graph and device == "cuda"
    )
    text = torch.randint(letters, (batch, length + 1), device=device)

    def step() -> None:
        loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()

    return captured(step) if graph and device == "cuda" else step


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
    main(make, FIXES, steps=300)
