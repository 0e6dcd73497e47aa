"""timm ResNet-50 answering one image at a time.

Truth: overhead / launch-bound. At batch 1 the kernels of a layer take a few microseconds each and
the host cannot issue them as fast. A captured CUDA graph plays them back without it. A step is two
images.
"""

import timm
import torch
from stepclock import Step, device_of, main

WALLS = [["overhead", "launch-bound"]]
ALSO = []
FIXES = ["cuda_graph"]
PARTS = 2  # findwall's step is one image


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    name, side = ("resnet50", 224) if size == "gpu" else ("resnet10t", 64)
    dtype = torch.float16 if size == "gpu" else torch.float32
    model = timm.create_model(name, pretrained=False).eval().to(device, dtype)
    image = torch.randn(1, 3, side, side, device=device, dtype=dtype)

    @torch.no_grad()
    def infer() -> torch.Tensor:
        return model(image)

    once = capture(infer) if fix == "cuda_graph" else infer

    def step() -> None:
        once()
        once()

    return step


def capture(infer: Step) -> Step:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            infer()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        infer()
    return graph.replay


if __name__ == "__main__":
    main(make)
