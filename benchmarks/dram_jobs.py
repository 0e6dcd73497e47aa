"""Small jobs of the zoo's kinds, in plain torch, for counting what their kernels move.

Each `make(size)` returns `step`, one call of which is one step. `size` is "gpu" (tensors far larger than the
cache) or "cpu" (the same code in a blink, to see that it runs).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

Step = Callable[[], object]


def _device(size: str) -> str:
    return "cuda" if size == "gpu" else "cpu"


def _train(model: nn.Module, batch: Callable[[], torch.Tensor], fused: bool = False) -> Step:
    device = next(model.parameters()).device.type
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, fused=fused or None, foreach=None if fused else True
    )

    def step() -> None:
        with torch.autocast(device, torch.bfloat16):
            loss = batch()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, naive: bool) -> None:
        super().__init__()
        self.heads, self.naive = heads, naive
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        if self.naive:
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(q.shape[-1]))
            mask = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
            y = F.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, naive: bool) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, naive)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.narrow(F.gelu(self.wide(self.second(x))))


class Gpt(nn.Module):
    def __init__(
        self, layers: int, width: int, heads: int, vocabulary: int, length: int, naive: bool
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, naive) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        x = self.tokens(index) + self.places(torch.arange(index.shape[1], device=index.device))
        return self.head(self.norm(self.blocks(x)))


def _gpt(size: str, rows: int, length: int, naive: bool, fused: bool) -> Step:
    device = _device(size)
    if size == "cpu":
        rows, length = 2, 16
    width, heads, vocabulary = (768, 12, 50257) if size == "gpu" else (32, 4, 97)
    model = Gpt(2, width, heads, vocabulary, length, naive).to(device)
    index = torch.randint(vocabulary, (rows, length), device=device)

    def loss() -> torch.Tensor:
        return F.cross_entropy(model(index).view(-1, vocabulary), index.view(-1))

    return _train(model, loss, fused and size == "gpu")


def gpt2_sdpa(size: str) -> Step:
    return _gpt(size, 32, 1024, naive=False, fused=False)


def gpt2_naive(size: str) -> Step:
    return _gpt(size, 8, 2048, naive=True, fused=True)


class Bottleneck(nn.Module):
    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = 4 * width
        self.a = nn.Conv2d(inside, width, 1, bias=False)
        self.b = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.c = nn.Conv2d(width, outside, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(width), nn.BatchNorm2d(outside)])
        self.short: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.short = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.a(x)), inplace=True)
        y = F.relu(self.norms[1](self.b(y)), inplace=True)
        y = self.norms[2](self.c(y))
        y += self.short(x)
        return F.relu(y, inplace=True)


def resnet(size: str) -> Step:
    device = _device(size)
    depths, rows, side = ((2, 2, 3, 2), 192, 224) if size == "gpu" else ((1, 1, 1, 1), 2, 32)
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
    ]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inside = 64
    for stage, depth in enumerate(depths):
        for at in range(depth):
            layers.append(Bottleneck(inside, 64 << stage, 2 if at == 0 and stage else 1))
            inside = (64 << stage) * 4
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000)]
    model = nn.Sequential(*layers).to(device).to(memory_format=torch.channels_last)
    images = torch.randn(rows, 3, side, side, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (rows,), device=device)
    return _train(model, lambda: F.cross_entropy(model(images), labels))


def pointwise(size: str) -> Step:
    x = torch.randn(1 << (27 if size == "gpu" else 10), device=_device(size))

    def step() -> torch.Tensor:
        y = x
        for _ in range(2):
            y = torch.tanh(y * 0.5) + y
            y = F.gelu(y) * 1.01
        return torch.where(y > 0, y, -y).to(torch.bfloat16)

    return step


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = nn.ParameterList([nn.Parameter(torch.ones(width)) for _ in range(2)])
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def norm(self, x: torch.Tensor, index: int) -> torch.Tensor:
        x = x.float()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale[index]

    def forward(self, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        b, t, c = x.shape
        h = self.norm(x, 0)
        q, k, v = (f(h).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = _turn(q, turn), _turn(k, turn)
        y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, c))
        h = self.norm(x, 1)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def _turn(x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * turn[0] + torch.cat((-x[..., half:], x[..., :half]), -1) * turn[1]


def llama(size: str) -> Step:
    device = _device(size)
    rows, length, width, heads, hidden = (8, 2048, 2048, 16, 5504) if size == "gpu" else (2, 16, 32, 4, 64)
    blocks = nn.ModuleList([LlamaBlock(width, heads, hidden) for _ in range(2)]).to(device)
    angle = torch.randn(length, width // heads, device=device)
    turn = (angle.cos()[None, None], angle.sin()[None, None])
    x = torch.randn(rows, length, width, device=device)

    def loss() -> torch.Tensor:
        y = x
        for block in blocks:
            y = block(y, turn)
        return y.pow(2).mean()

    return _train(blocks, loss)


def _parameters(size: str, count: int, rows: int, dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    """Parameters that have a gradient already."""
    rows, columns = (rows, 4096) if size == "gpu" else (4, 8)
    made = [nn.Parameter(torch.randn(rows, columns, device=_device(size), dtype=dtype)) for _ in range(count)]
    for parameter in made:
        parameter.grad = torch.randn_like(parameter)
    return made


# A launch over a list of tensors takes 320 blocks of 65536 elements: five of [4096, 4096] are four launches.
_LISTED, _ALONE = (5, 4096), (2, 8192)


def _steps(optimizers: list[torch.optim.Optimizer]) -> Step:
    def step() -> None:
        for optimizer in optimizers:
            optimizer.step()

    return step


def adam(size: str) -> Step:
    """The same update tensor by tensor, over lists, and fused; the last also in 16 bits."""
    half = _parameters(size, 5, 8192, torch.bfloat16)
    return _steps(
        [
            torch.optim.AdamW(_parameters(size, *_ALONE), foreach=False, fused=False),
            torch.optim.AdamW(_parameters(size, *_LISTED), foreach=True),
            torch.optim.AdamW(_parameters(size, *_LISTED), fused=True),
            torch.optim.Adam(half, fused=True),
        ]
    )


def sgd(size: str) -> Step:
    """With momentum, the same three ways; and without, over lists."""
    return _steps(
        [
            torch.optim.SGD(_parameters(size, *_ALONE), 1e-3, momentum=0.9, foreach=False, fused=False),
            torch.optim.SGD(_parameters(size, *_LISTED), 1e-3, momentum=0.9, foreach=True),
            torch.optim.SGD(_parameters(size, *_LISTED), 1e-3, momentum=0.9, fused=True),
            torch.optim.SGD(_parameters(size, *_LISTED), 1e-3, foreach=True),
        ]
    )


def clipping(size: str) -> Step:
    """Gradients clipped over lists and one by one, and unscaled as after a scaled loss."""
    listed, alone = _parameters(size, *_LISTED), _parameters(size, *_ALONE)
    gradients = [parameter.grad for parameter in listed if parameter.grad is not None]
    found, scale = (torch.full((1,), value, device=_device(size)) for value in (0.0, 1.0))

    def step() -> None:
        torch.nn.utils.clip_grad_norm_(listed, 1.0, foreach=True)
        torch.nn.utils.clip_grad_norm_(alone, 1.0, foreach=False)
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, scale)

    return step


def tables(size: str) -> Step:
    """Rows fetched and added by number, copies that change the layout, sorting."""
    device = _device(size)
    entries, width, rows = (1 << 20, 256, 1 << 19) if size == "gpu" else (64, 8, 32)
    table = nn.Embedding(entries, width).to(device)
    index = torch.randint(entries, (rows,), device=device)
    other = torch.randn(rows, width, device=device)

    def step() -> None:
        found = table(index)
        mixed = torch.cat((found, other), dim=1)
        mixed.mul(found.sum()).mean().backward()
        table.weight.grad = None
        picked = other.index_select(0, index % rows)
        target = torch.zeros_like(other).index_add_(0, index % rows, picked)
        target.t().contiguous().softmax(-1)  # each column read touches more than the cache holds
        other.view(-1, 32 * width).t().contiguous()  # and here much less
        F.layer_norm(other, (width,)).amax(0)
        torch.gather(other, 0, (index % rows)[:, None].expand(-1, width))

    return step


JOBS: dict[str, Callable[[str], Step]] = {
    "gpt2_sdpa": gpt2_sdpa,
    "gpt2_naive": gpt2_naive,
    "resnet": resnet,
    "pointwise": pointwise,
    "llama": llama,
    "adam": adam,
    "sgd": sgd,
    "clipping": clipping,
    "tables": tables,
}
