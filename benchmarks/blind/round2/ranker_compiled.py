"""Online ranking: a small transformer (8 layers, 512 wide) scores four candidate shards a request under `torch.compile`, with
a tracing helper, kept out of the graph by `torch.compiler.disable`, called three times a layer.

Why: every call of the helper breaks the graph, so a request runs a hundred small compiled pieces, each with its guards and
its launch from Python, and nothing fuses across them. The device is idle most of the time.
Trap: the model is compiled, so compile "is done already".
Fixes: no_breaks: the helper is not called while compiling. no_breaks_graph: the same with mode="reduce-overhead".
"""

import time

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["overhead", "graph-breaks"], ["overhead", "launch-bound"]]
FIXES = ["no_breaks", "no_breaks_graph"]
TRUTH_STEPS = 250
SPANS = []
TRACING = True


@torch.compiler.disable
def span(name, x):
    SPANS.append((name, x.shape, time.perf_counter()))
    if len(SPANS) > 1000:
        SPANS.clear()
    return x


def traced(name, x):
    return span(name, x) if TRACING else x


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        q = traced("qkv", q)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = traced("attention", x + self.proj(y))
        return traced("mlp", x + self.down(F.gelu(self.up(self.n2(x)))))


class Ranker(nn.Module):
    def __init__(self, items, d, heads, layers):
        super().__init__()
        self.items = nn.Embedding(items, d)
        self.layers = nn.ModuleList(Layer(d, heads) for _ in range(layers))
        self.score = nn.Linear(d, 1)

    def forward(self, ids):
        x = self.items(ids)
        for layer in self.layers:
            x = layer(x)
        return self.score(x).squeeze(-1)


@torch.no_grad()
def main():
    global TRACING
    args = arguments(1800, FIXES, cpu_steps=4)
    TRACING = args.fix is None
    items, d, heads, layers, batch, length = (500_000, 512, 8, 8, 16, 64) if args.gpu else (100, 32, 2, 2, 2, 8)
    with torch.device(args.device):
        model = Ranker(items, d, heads, layers).bfloat16().eval()
    backend = {} if args.gpu else {"backend": "eager"}
    if args.gpu and args.fix == "no_breaks_graph":
        backend = {"mode": "reduce-overhead"}
    model = torch.compile(model, **backend)
    requests = torch.randint(0, items, (32, 4, batch, length), device=args.device)
    clock = Clock(args.steps)
    for request in range(args.steps):
        shards = [model(ids).amax(-1) for ids in requests[request % 32]]
        torch.cat(shards).topk(4).indices.tolist()
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
