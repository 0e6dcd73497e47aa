"""Generates incident summaries from service logs: a grouped-query decoder whose keys and values live in a
ring of the last 8192 tokens; 16 conversations advance by one token a step."""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["bandwidth", "layout-copies"]]
FIXES = {
    "grouped": "attention reads the grouped keys and values as they are stored",
    "graph": "the token step is replayed from a CUDA graph",
}
TRUTH_STEPS = 240


def repeat_heads(x, times):
    batch, heads, window, size = x.shape
    x = x[:, :, None].expand(batch, heads, times, window, size)
    return x.reshape(batch, heads * times, window, size)


class Layer(nn.Module):
    def __init__(self, width, heads, groups, hidden, batch, window, grouped):
        super().__init__()
        self.heads, self.groups, self.grouped = heads, groups, grouped
        self.size = width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.both = nn.Linear(width, groups * self.size * 2, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, hidden * 2, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.register_buffer("keys", torch.randn(batch, groups, window, self.size))
        self.register_buffer("values", torch.randn(batch, groups, window, self.size))

    def attend(self, x, slot):
        batch = x.shape[0]
        query = self.query(x).view(batch, self.heads, 1, self.size)
        key, value = self.both(x).view(batch, 2, self.groups, 1, self.size).unbind(1)
        self.keys.index_copy_(2, slot, key)
        self.values.index_copy_(2, slot, value)
        if self.grouped:
            mixed = F.scaled_dot_product_attention(query, self.keys, self.values, enable_gqa=True)
        else:
            times = self.heads // self.groups
            keys, values = repeat_heads(self.keys, times), repeat_heads(self.values, times)
            mixed = F.scaled_dot_product_attention(query, keys, values)
        return self.out(mixed.reshape(batch, -1))

    def forward(self, x, slot):
        x = x + self.attend(self.norm1(x), slot)
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, vocabulary, depth, width, *rest):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, *rest) for _ in range(depth))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, slot):
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x, slot)
        return self.head(self.norm(x)).argmax(-1)


def replayed(model, tokens, slot):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(tokens, slot)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        after = model(tokens, slot)

    def call(new, at):
        tokens.copy_(new)
        slot.copy_(at)
        graph.replay()
        return after

    return call


@torch.inference_mode()
def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(9)
    if args.gpu:
        vocabulary, depth, width, heads, groups, hidden, batch, window = (
            32000,
            12,
            4096,
            32,
            4,
            8192,
            16,
            8192,
        )
    else:
        vocabulary, depth, width, heads, groups, hidden, batch, window = 100, 2, 32, 4, 2, 64, 2, 64
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(args.device):
        rest = (heads, groups, hidden, batch, window, args.fix == "grouped")
        model = Decoder(vocabulary, depth, width, *rest).eval()
    tokens = torch.randint(0, vocabulary, (batch,), device=args.device)
    slot = torch.zeros(1, dtype=torch.long, device=args.device)
    advance = replayed(model, tokens.clone(), slot.clone()) if args.fix == "graph" and args.gpu else model

    clock = Clock(args.steps)
    for _ in range(args.steps):
        tokens = advance(tokens, slot)
        slot = (slot + 1) % window
        clock.tick()
    clock.report()
    print("last tokens", tokens.tolist())


if __name__ == "__main__":
    main()
