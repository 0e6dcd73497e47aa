"""A small transformer trained with a tiny batch.

Truth: overhead / launch-bound. 256 tokens of width 256: every kernel ends before the host has
issued the next one. One captured graph of the whole step, or a larger batch, takes the host out of
the way.
"""

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "launch-bound"]]
ALSO = []
FIXES = ["cuda_graph"]


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, length, width, depth = (4, 64, 256, 6) if size == "gpu" else (2, 8, 32, 2)
    torch.set_float32_matmul_precision("high")
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False).to(device)
    graphed = fix == "cuda_graph"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=graphed)
    x = torch.randn(batch, length, width, device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    return capture(step) if graphed else step


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
