"""Two DDP ranks with a large model, a small batch and a slow wire between them (gloo).

Truth: comms / exposed-collective. The gradients take far longer to average than the backward pass
that should hide them. Start it with `torchrun --nproc-per-node 2`; both ranks share one device.
"""

import os

import torch
import torch.distributed as dist
from stepclock import arguments, block_ms
from torch import nn

WALLS = [["comms", "exposed-collective"], ["comms", "slow-link"]]
ALSO = []
FIXES = []
RANKS = 2


def main() -> None:
    chosen = arguments(steps=20)
    dist.init_process_group("gloo")
    device = "cuda:0" if chosen.size == "gpu" else "cpu"
    width, depth, batch = (4096, 2, 64) if chosen.size == "gpu" else (256, 3, 8)
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(batch, width, device=device)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(3):
        step()
    mean = block_ms(step, chosen.steps)
    if os.environ["RANK"] == "0":
        print(f"mean step ms {mean:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
