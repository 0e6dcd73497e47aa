"""Serves a contract reviewer: a large bidirectional transformer marks each clause with the risks it carries;
clauses come one at a time, padded to 128 tokens, and the risks go back as a list."""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["bandwidth", "dtype-casts"]]
FIXES = {
    "half-weights": "weights are stored in bfloat16 and autocast is left out",
    "graph": "the call is replayed from a CUDA graph",
}
TRUTH_STEPS = 400


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, width * 3, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, width * 4, bias=False)
        self.down = nn.Linear(width * 4, width, bias=False)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ClauseReader(nn.Module):
    def __init__(self, vocabulary, tokens, width, heads, depth, risks):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.risks = nn.Linear(width, risks)

    def forward(self, clause):
        x = self.words(clause) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.risks(self.norm(x[:, 0])).sigmoid()


class Service:
    def __init__(self, model, device, autocast):
        self.model, self.device, self.autocast = model, device, autocast
        self.graph = None

    def forward(self, clause):
        cached = self.graph is None
        with torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=self.autocast, cache_enabled=cached
        ):
            return self.model(clause)

    def capture(self, clause):
        self.graph = torch.cuda.CUDAGraph()
        self.clause = clause.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.forward(self.clause)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(self.graph):
            self.result = self.forward(self.clause)

    @torch.inference_mode()
    def answer(self, clause):
        if self.graph is None:
            return self.forward(clause)[0].float().tolist()
        self.clause.copy_(clause)
        self.graph.replay()
        return self.result[0].float().tolist()


def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(8)
    vocabulary, tokens, width, heads, depth = (32000, 128, 4096, 32, 20) if args.gpu else (100, 16, 32, 2, 2)
    with torch.device(args.device):
        model = ClauseReader(vocabulary, tokens, width, heads, depth, 24).eval()
    if args.fix == "half-weights":
        model.bfloat16()
    service = Service(model, args.device, args.fix != "half-weights")
    clauses = torch.randint(0, vocabulary, (32, 1, tokens), device=args.device)
    if args.fix == "graph" and args.gpu:
        with torch.inference_mode():
            service.capture(clauses[0])

    flagged = 0
    clock = Clock(args.steps)
    for step in range(args.steps):
        flagged += sum(risk > 0.5 for risk in service.answer(clauses[step % 32]))
        clock.tick()
    clock.report()
    print("flagged", flagged)


if __name__ == "__main__":
    main()
