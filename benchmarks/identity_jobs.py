"""Small jobs that tell exactly what they computed, for holding a run under findwall against a plain one.

    python benchmarks/identity_jobs.py NAME [--size gpu|cpu] [--steps N]

Each prints one line of JSON: a sha256 over every step's result, over the final parameters, and over the state
of every random generator a job may use. All but `atomics` ask torch for deterministic algorithms.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator

import numpy
import torch
import torch.nn.functional as F
from torch import nn

SEED = 1234
CAPTURE_AT = 10  # a step: findwall has begun to time by then (`--wait 5`)
SERIES = 2048  # values told in full, the last ones, where two plain runs may differ


class Ledger:
    """What a job computed, step by step, without a synchronize in between."""

    def __init__(self) -> None:
        self._results: list[torch.Tensor] = []

    def note(self, result: torch.Tensor) -> None:
        self._results.append(result.detach().clone())

    def series(self) -> torch.Tensor:
        return torch.stack([result.double().reshape(-1).sum() for result in self._results]).cpu()

    def digest(self) -> str:
        return sha(_bytes(result) for result in self._results)

    def __len__(self) -> int:
        return len(self._results)


def sha(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def random_states() -> dict[str, str]:
    _, keys, *place = numpy.random.get_state()
    states = {
        "torch_rng": sha([_bytes(torch.get_rng_state())]),
        "python_rng": sha([repr(random.getstate()).encode()]),
        "numpy_rng": sha([keys.tobytes(), repr(place).encode()]),
    }
    if torch.cuda.is_available():
        states["cuda_rng"] = sha([_bytes(torch.cuda.get_rng_state())])
    return states


def seed_all(deterministic: bool) -> None:
    random.seed(SEED)
    numpy.random.seed(SEED)
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(deterministic)
    torch.backends.cudnn.benchmark = not deterministic


def moody(optimizer: torch.optim.Optimizer) -> None:
    """Python's and numpy's generators decide too: a draw too many by anyone changes what follows."""
    for group in optimizer.param_groups:
        group["lr"] = 1e-3 * (0.5 + random.random()) * (0.5 + numpy.random.rand())


class Attention(nn.Module):
    """Written out: the fused backward passes have no deterministic version everywhere."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * (c // self.heads) ** -0.5
        weights = F.dropout(F.softmax(scores, dim=-1), 0.1, self.training)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.wide, self.narrow, self.drop = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
            nn.Dropout(0.1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.drop(self.narrow(F.gelu(self.wide(self.second(x)))))


class Speaker(nn.Module):
    def __init__(self, size: str) -> None:
        super().__init__()
        width, heads, depth, self.vocabulary, self.length = (
            (256, 8, 4, 1024, 128) if size == "gpu" else (32, 4, 2, 64, 16)
        )
        self.tokens, self.places = nn.Embedding(self.vocabulary, width), nn.Embedding(self.length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, self.vocabulary)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        x = self.tokens(index) + self.places(torch.arange(index.shape[1], device=index.device))
        return self.head(self.norm(self.blocks(x)))


def _language_loss(model: nn.Module, index: torch.Tensor, vocabulary: int) -> torch.Tensor:
    return F.cross_entropy(model(index[:, :-1]).reshape(-1, vocabulary).float(), index[:, 1:].reshape(-1))


Made = Iterable[torch.Tensor]
Job = Callable[[str, str, int, Ledger], Made]


def transformer_bf16(size: str, device: str, steps: int, ledger: Ledger) -> Made:
    """Dropout, AdamW, a schedule, clipped gradients."""
    model = Speaker(size).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1 + step / 100))
    for _ in range(steps):
        index = torch.randint(model.vocabulary, (8, model.length + 1), device=device)
        with torch.autocast(device, torch.bfloat16):
            loss = _language_loss(model, index, model.vocabulary)
        loss.backward()
        ledger.note(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        ledger.note(loss)
    return model.parameters()


def transformer_fp16_scaler(size: str, device: str, steps: int, ledger: Ledger) -> Made:
    """A scale that overflows again and again: some steps are skipped."""
    model = Speaker(size).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**30, growth_interval=20, growth_factor=16.0)
    for _ in range(steps):
        index = torch.randint(model.vocabulary, (8, model.length + 1), device=device)
        with torch.autocast(device, torch.float16):
            loss = _language_loss(model, index, model.vocabulary)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        moody(optimizer)
        optimizer.zero_grad(set_to_none=True)
        ledger.note(loss)
        ledger.note(torch.tensor(scaler.get_scale()))
    return model.parameters()


class Images(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Made and disturbed in the worker, by the worker's own generators."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        image = torch.full((3, 32, 32), at / self.count) + 0.1 * torch.randn(3, 32, 32)
        return (image.flip(-1) if random.random() < 0.5 else image), at % 10


def _batches(size: str, steps: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    rows, each = (1280, 32) if size == "gpu" else (320, 8)
    order = torch.Generator().manual_seed(SEED)
    loader = torch.utils.data.DataLoader(
        Images(rows), each, shuffle=True, num_workers=2, generator=order, pin_memory=size == "gpu"
    )
    left = steps
    while left > 0:  # new workers an epoch
        for batch in loader:
            yield batch
            left -= 1
            if left == 0:
                return


def convolutions_loader(size: str, device: str, steps: int, ledger: Ledger) -> Made:
    width = 64 if size == "gpu" else 8
    layers: list[nn.Module] = []
    for inside, outside in ((3, width), (width, 2 * width), (2 * width, 2 * width)):
        layers += [
            nn.Conv2d(inside, outside, 3, 2, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
        ]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(2 * width * 16, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for images, labels in _batches(size, steps):
        images = images.to(device, non_blocking=True)
        loss = F.cross_entropy(model(images), labels.to(device, non_blocking=True))
        loss.backward()
        optimizer.step()
        moody(optimizer)
        optimizer.zero_grad(set_to_none=True)
        ledger.note(loss)
    return [*model.parameters(), *model.buffers()]


def _perceptron(size: str, device: str, depth: int = 4) -> nn.Module:
    width = 512 if size == "gpu" else 32
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Dropout(0.2)]
    return nn.Sequential(*layers).to(device)


def _width(model: nn.Module) -> int:
    return next(model.parameters()).shape[1]


def compiled(size: str, device: str, steps: int, ledger: Ledger) -> Made:
    model = _perceptron(size, device, depth=2)  # compiling takes time
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    fast = torch.compile(model)
    for _ in range(steps):
        loss = fast(torch.randn(64, _width(model), device=device)).square().mean()
        loss.backward()
        optimizer.step()
        moody(optimizer)
        optimizer.zero_grad(set_to_none=True)
        ledger.note(loss)
    return model.parameters()


def sampling(size: str, device: str, steps: int, ledger: Ledger) -> Made:
    """Inference: a token a step, drawn from what the model says."""
    model = Speaker(size).to(device).eval()
    window = torch.randint(model.vocabulary, (4, model.length), device=device)
    for _ in range(steps):
        with torch.no_grad():
            chances = F.softmax(model(window)[:, -1], dim=-1)
        token = torch.multinomial(chances, 1)
        window = torch.cat((window[:, 1:], token), dim=1)
        ledger.note(token)
        ledger.note(chances.gather(1, token))
    return [window]


def _captured(act: Callable[[], torch.Tensor], reset: Callable[[], None]) -> Callable[[], torch.Tensor]:
    """`act` as a graph, caught while the job is under way. Elsewhere than on a GPU: `act`."""
    if not torch.cuda.is_available():
        return act
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            reset()
            act()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    reset()
    with torch.cuda.graph(graph):
        told = act()

    def replay() -> torch.Tensor:
        graph.replay()
        return told

    return replay


def graph_backward(size: str, device: str, steps: int, ledger: Ledger) -> Made:
    """Forward and backward become a graph at step 10; the optimizer stays outside."""
    model = _perceptron(size, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.empty(64, _width(model), device=device)

    def act() -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    def reset() -> None:
        optimizer.zero_grad(set_to_none=True)

    go = act
    for step in range(steps):
        x.copy_(torch.randn(64, _width(model), device=device))
        if step == CAPTURE_AT:
            go = _captured(act, reset)
        if go is act:
            reset()
        ledger.note(go())
        optimizer.step()
        moody(optimizer)
    return model.parameters()


def graph_whole(size: str, device: str, steps: int, ledger: Ledger) -> Made:
    """The whole step, optimizer and all, becomes a graph at step 10."""
    model = _perceptron(size, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=device == "cuda")
    x = torch.empty(64, _width(model), device=device)

    def reset() -> None:
        optimizer.zero_grad(set_to_none=True)

    def act() -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    go = act
    for step in range(steps):
        x.copy_(torch.randn(64, _width(model), device=device))
        if step == CAPTURE_AT:
            go = _captured(act, reset)
        if go is act:
            reset()
        ledger.note(go())
    return model.parameters()


def atomics(size: str, device: str, steps: int, ledger: Ledger) -> Made:
    """Sums whose order the device chooses: two plain runs differ in the last bits."""
    rows, width = (1 << 17, 64) if size == "gpu" else (1 << 9, 8)
    layer = nn.Linear(width, width).to(device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
    x, index = torch.randn(rows, width, device=device), torch.randint(64, (rows,), device=device)
    for _ in range(steps):
        sums = torch.zeros(64, width, device=device).index_add(0, index, layer(x))
        loss = (sums / rows**0.5).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ledger.note(loss)
    return layer.parameters()


# Steps by size: some seconds of each, so that findwall comes to its last phase.
JOBS: dict[str, tuple[Job, dict[str, int]]] = {
    "compiled": (compiled, {"gpu": 5000, "cpu": 1500}),
    "transformer_bf16": (transformer_bf16, {"gpu": 500, "cpu": 250}),
    "transformer_fp16_scaler": (transformer_fp16_scaler, {"gpu": 500, "cpu": 200}),
    "convolutions_loader": (convolutions_loader, {"gpu": 800, "cpu": 240}),
    "sampling": (sampling, {"gpu": 1500, "cpu": 1500}),
    "graph_backward": (graph_backward, {"gpu": 5000, "cpu": 1000}),
    "graph_whole": (graph_whole, {"gpu": 30000, "cpu": 1000}),
    "atomics": (atomics, {"gpu": 8000, "cpu": 3000}),
}
LOOSE = frozenset({"atomics"})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("name", choices=sorted(JOBS))
    parser.add_argument("--size", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--steps", type=int)
    asked = parser.parse_args()
    job, steps = JOBS[asked.name]
    seed_all(asked.name not in LOOSE)
    ledger = Ledger()
    device = "cuda" if asked.size == "gpu" else "cpu"
    last = list(job(asked.size, device, asked.steps or steps[asked.size], ledger))
    told: dict[str, object] = {
        "results": ledger.digest(),
        "parameters": sha(_bytes(tensor) for tensor in last),
        **random_states(),
        "noted": len(ledger),
    }
    if asked.name in LOOSE:
        told["series"] = [
            [float(value).hex() for value in values.double().cpu().reshape(-1)[-SERIES:]]
            for values in (ledger.series(), *(tensor.detach() for tensor in last))
        ]
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    about = {"torch": torch.__version__, "cuda": torch.version.cuda, "gpu": gpu}
    print(json.dumps({**told, **about}), flush=True)


if __name__ == "__main__":
    main()
