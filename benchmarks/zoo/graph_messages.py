"""Message passing on a random graph: gather by source, add up by destination.

Truth: bandwidth / gather-scatter. index_select and index_add over eight million edges carry the
step; the layers' matmuls are on the nodes alone and small. Edges sorted by target make the adds
local.
"""

import torch
from changes import compiled, precision
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["bandwidth", "gather-scatter"]]
ALSO = []
FIXES = ["sorted_edges", "compile", "sorted_edges_compile", "bf16"]


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    nodes, edges, width, depth = (1_000_000, 8_000_000, 64, 3) if size == "gpu" else (200, 1000, 16, 2)
    torch.set_float32_matmul_precision("high")
    layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)]).to(device)
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-3, fused=True)
    features = torch.randn(nodes, width, device=device)
    source = torch.randint(nodes, (edges,), device=device)
    target = torch.randint(nodes, (edges,), device=device)
    if "sorted_edges" in (fix or ""):
        target, order = target.sort()
        source = source[order]

    def forward(x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            messages = layer(x).index_select(0, source)
            x = torch.zeros_like(x, dtype=messages.dtype).index_add(0, target, messages)
        return x

    run = compiled(forward, fix)

    def step() -> None:
        with precision(device, fix):
            loss = run(features).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main(make)
