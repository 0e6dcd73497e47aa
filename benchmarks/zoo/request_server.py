"""A text scorer behind a queue: another thread brings requests of one to sixteen texts, the loop pads
them, runs a small and deep model and answers.

Truth: overhead / launch-bound. Requests are always waiting. The model's 36 thin layers are some five
hundred kernels of a few microseconds, issued slower than they run; one graph of the padded shape,
replayed for every request, answers several times as fast. While shapes are still new, overhead /
recompilation as well: a third of the first hundred requests had cuDNN build a plan of 75 ms for theirs
(measured: 14 ms without, 90 ms with one), which the padded shape also ends.
"""

import queue
import random
import threading

import torch
from fixclock import Clock, arguments, device_of
from torch import nn

WALLS = [["overhead", "launch-bound"], ["overhead", "recompilation"]]
ALSO = []
FIXES = ["cuda_graph"]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Scorer(nn.Module):
    def __init__(self, vocabulary: int, width: int, depth: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*[Block(width, max(1, width // 64)) for _ in range(depth)])
        self.head = nn.Linear(width, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.words(ids)).mean(1)).softmax(-1)


class Request:
    def __init__(self, texts: list[list[int]]) -> None:
        self.texts = texts
        self.scores: list[list[float]] = []
        self.answered = threading.Event()


def bring(requests: "queue.Queue[Request]", most: int, longest: int, vocabulary: int) -> None:
    """The clients: they keep a few requests waiting at all times."""
    dice = random.Random(0)
    bodies = [
        [
            [dice.randrange(vocabulary) for _ in range(dice.randint(longest // 4, longest))]
            for _ in range(dice.randint(1, most))
        ]
        for _ in range(64)
    ]
    while True:
        requests.put(Request(dice.choice(bodies)))


def padded(texts: list[list[int]], rows: int, length: int) -> torch.Tensor:
    ids = torch.zeros(rows, length, dtype=torch.long)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.tensor(text)
    return ids


class Replayed:
    """The model at one fixed shape, captured once."""

    def __init__(self, model: nn.Module, rows: int, length: int) -> None:
        self.rows, self.length = rows, length
        self.ids = torch.zeros(rows, length, dtype=torch.long, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(self.ids)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.scores = model(self.ids)

    def __call__(self, texts: list[list[int]]) -> torch.Tensor:
        self.ids.copy_(padded(texts, self.rows, self.length))
        self.graph.replay()
        return self.scores[: len(texts)]


def main() -> None:
    chosen = arguments(FIXES, steps=600)
    device = device_of(chosen.size)
    most, longest, vocabulary, width, depth = (
        (16, 64, 8192, 256, 36) if device == "cuda" else (4, 8, 64, 32, 2)
    )
    torch.manual_seed(0)
    model = Scorer(vocabulary, width, depth).eval().to(device, torch.bfloat16)
    requests: queue.Queue[Request] = queue.Queue(maxsize=8)
    threading.Thread(target=bring, args=(requests, most, longest, vocabulary), daemon=True).start()
    clock = Clock(chosen, warmup=20)
    with torch.no_grad():
        replayed = Replayed(model, most, longest) if chosen.fix and device == "cuda" else None
        while True:
            request = requests.get()
            if replayed:
                scores = replayed(request.texts)
            else:
                length = max(len(text) for text in request.texts)
                scores = model(padded(request.texts, len(request.texts), length).to(device))
            request.scores = scores.float().cpu().tolist()
            request.answered.set()
            if clock.done():
                return


if __name__ == "__main__":
    main()
