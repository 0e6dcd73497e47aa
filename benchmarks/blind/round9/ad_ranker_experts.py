"""Serves an ad ranker built of expert-choice mixture layers: every call scores the 256 candidates of one
page view; each of the 64 experts takes the candidates that suit it best."""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["bandwidth", "memory-roof"]]
FIXES = {
    "graph": "the scoring call is replayed from a CUDA graph",
    "joined": "gate and up projections of the experts are one product",
}
TRUTH_STEPS = 400


class ExpertLayer(nn.Module):
    def __init__(self, width, hidden, experts, capacity, joined):
        super().__init__()
        self.capacity, self.joined = capacity, joined
        self.norm = nn.LayerNorm(width)
        self.route = nn.Linear(width, experts, bias=False)
        scale = width**-0.5
        if joined:
            self.both = nn.Parameter(torch.empty(experts, hidden * 2, width).normal_(0, scale))
        else:
            self.gate = nn.Parameter(torch.empty(experts, hidden, width).normal_(0, scale))
            self.up = nn.Parameter(torch.empty(experts, hidden, width).normal_(0, scale))
        self.down = nn.Parameter(torch.empty(experts, width, hidden).normal_(0, hidden**-0.5))

    def forward(self, x):
        normed = self.norm(x)
        affinity = self.route(normed).softmax(-1)
        weight, chosen = affinity.t().topk(self.capacity, dim=1)
        taken = normed[chosen.flatten()].view(*chosen.shape, -1)
        if self.joined:
            gate, up = torch.bmm(taken, self.both.transpose(1, 2)).chunk(2, dim=-1)
        else:
            gate = torch.bmm(taken, self.gate.transpose(1, 2))
            up = torch.bmm(taken, self.up.transpose(1, 2))
        mixed = torch.bmm(F.silu(gate) * up, self.down.transpose(1, 2)) * weight.unsqueeze(-1)
        return x.index_add(0, chosen.flatten(), mixed.flatten(0, 1))


class Ranker(nn.Module):
    def __init__(self, features, width, hidden, experts, capacity, depth, joined):
        super().__init__()
        self.enter = nn.Linear(features, width)
        self.layers = nn.ModuleList(
            ExpertLayer(width, hidden, experts, capacity, joined) for _ in range(depth)
        )
        self.score = nn.Linear(width, 1)

    def forward(self, candidates):
        x = self.enter(candidates)
        for layer in self.layers:
            x = layer(x)
        return self.score(x).squeeze(-1).sigmoid()


def replayed(model, candidates):
    still = candidates.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(still)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scores = model(still)

    def call(candidates):
        still.copy_(candidates)
        graph.replay()
        return scores

    return call


@torch.inference_mode()
def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(6)
    shape = (512, 4096, 8192, 64, 16, 3) if args.gpu else (16, 32, 64, 4, 4, 2)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(args.device):
        model = Ranker(*shape, args.fix == "joined").eval()
    views = torch.randn(16, 256 if args.gpu else 16, shape[0], device=args.device)
    score = replayed(model, views[0]) if args.fix == "graph" and args.gpu else model

    shown = torch.zeros(16, dtype=torch.long, device=args.device)
    clock = Clock(args.steps)
    for step in range(args.steps):
        shown[step % 16] = score(views[step % 16]).argmax()
        clock.tick()
    clock.report()
    print("shown", shown.tolist())


if __name__ == "__main__":
    main()
