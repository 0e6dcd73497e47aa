"""Image-text matching: two Python threads, each running its tower on its own stream; the main thread
waits for both, joins the streams and reads the best match.

Truth: the host. The text tower is a few hundred tiny ops, the image tower a few large ones; the two
threads take turns at the interpreter, and the device does both in 3 ms, less than half of what issuing
them takes. One thread issues the same work faster than two. torch.profiler sees no op of the two
threads, only their launches and kernels.

Fixes: one_thread: the same two streams, issued one after the other by the main thread. cuda_graph:
each tower is one captured graph, replayed on its own stream.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "launch-bound"]]
ALSO = []
FIXES = ["one_thread", "cuda_graph"]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, c // 64, 64).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Tower(nn.Module):
    def __init__(self, width: int, depth: int, out: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.out = nn.Linear(width, out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.normalize(self.out(self.blocks(x).mean(1)), dim=-1)


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    there = device == "cuda"
    wide, narrow = ((1024, 6), (256, 12)) if there else ((64, 1), (64, 2))
    batch = 32 if there else 2
    dtype = torch.bfloat16
    towers = [Tower(*wide, 256).eval().to(device, dtype), Tower(*narrow, 256).eval().to(device, dtype)]
    inputs = [
        torch.randn(batch, 256 if there else 8, wide[0], device=device, dtype=dtype),
        torch.randn(batch, 24 if there else 4, narrow[0], device=device, dtype=dtype),
    ]
    streams = [torch.cuda.Stream() for _ in towers] if there else [None, None]

    def encode(index: int) -> torch.Tensor:
        with torch.no_grad(), torch.cuda.stream(streams[index]):
            return towers[index](inputs[index])

    run: list[Callable[[], torch.Tensor]] = [lambda: encode(0), lambda: encode(1)]
    if fix == "cuda_graph":
        run = [capture(towers[i], inputs[i], streams[i]) for i in range(2)]
    pool = ThreadPoolExecutor(2) if fix is None else None

    def step() -> list[int]:
        if there:
            for stream in streams:
                stream.wait_stream(torch.cuda.current_stream())
        images, texts = [f.result() for f in [pool.submit(r) for r in run]] if pool else [r() for r in run]
        if there:
            for stream in streams:
                torch.cuda.current_stream().wait_stream(stream)
        return (images @ texts.T).argmax(1).tolist()

    return step


def capture(tower: nn.Module, x: torch.Tensor, stream: torch.cuda.Stream) -> Callable[[], torch.Tensor]:
    with torch.no_grad():
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                tower(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            out = tower(x)

    def replay() -> torch.Tensor:
        with torch.cuda.stream(stream):
            graph.replay()
        return out

    return replay


if __name__ == "__main__":
    main(make)
