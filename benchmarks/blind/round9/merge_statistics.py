"""Collects the statistics with which two fine-tuned models are merged by regression (RegMean): calibration
activations run through the feed-forward blocks and the Gram matrix of every projection's input is summed."""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["compute", "at-the-roof"]]
FIXES = {
    "graph": "the whole step is replayed from a CUDA graph",
    "in-place": "activation function and residual write into their inputs",
}
TRUTH_STEPS = 45


class FeedForward(nn.Module):
    def __init__(self, width, hidden, in_place):
        super().__init__()
        self.in_place = in_place
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        if self.in_place:
            return x.add_(self.down(self.up(self.norm(x)).relu_()))
        return x + self.down(F.relu(self.up(self.norm(x))))


class Gram:
    """Sums X^T X of a layer's input over the calibration set."""

    def __init__(self, layer):
        width = layer.in_features
        self.total = torch.zeros(width, width, device=layer.weight.device)
        self.rows = 0
        layer.register_forward_pre_hook(self.collect)

    def collect(self, layer, inputs):
        rows = inputs[0].flatten(0, -2)
        self.total.add_(rows.t() @ rows, alpha=1 / rows.shape[0])
        self.rows += rows.shape[0]


def replayed(model, batch):
    still = batch.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(still.clone())
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = model(still)

    def call(batch):
        still.copy_(batch)
        graph.replay()
        return result

    return call


@torch.inference_mode()
def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(5)
    rows, width, hidden, depth = (32768, 4096, 16384, 2) if args.gpu else (64, 16, 64, 2)
    with torch.device(args.device):
        blocks = [FeedForward(width, hidden, args.fix == "in-place") for _ in range(depth)]
    model = nn.Sequential(*blocks).to(torch.bfloat16)
    grams = {name: Gram(m) for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    batches = [torch.randn(rows, width, device=args.device, dtype=torch.bfloat16) for _ in range(3)]
    step_of = replayed(model, batches[0]) if args.fix == "graph" and args.gpu else model

    clock = Clock(args.steps)
    for step in range(args.steps):
        batch = batches[step % 3]
        step_of(batch.clone() if args.fix == "in-place" else batch)
        clock.tick()
    clock.report()
    for name, gram in grams.items():
        print(name, "mean diagonal", f"{gram.total.diagonal().mean().item() / args.steps:.4f}")


if __name__ == "__main__":
    main()
