"""Spoken digits with a recurrent spiking network.

Spike trains of 700 cochlear channels over 100 time bins; two recurrent layers of leaky integrate-and-fire
neurons trained with a surrogate gradient, and a readout of mean rates.
"""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["overhead", "launch-bound"]]
FIXES = {"cuda_graph": "the whole training step captured once as a CUDA graph and replayed"}
TRUTH_STEPS = 80
CLASSES, CHANNELS = 20, 700


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, potential):
        ctx.save_for_backward(potential)
        return (potential > 0).to(potential.dtype)

    @staticmethod
    def backward(ctx, grad):
        (potential,) = ctx.saved_tensors
        return grad / (1 + 10 * potential.abs()) ** 2


class Layer(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.feed = nn.Linear(inputs, width)
        self.recur = nn.Linear(width, width, bias=False)
        nn.init.orthogonal_(self.recur.weight, 0.5)

    def forward(self, spikes):
        current = self.feed(spikes) * 4
        batch, width = current.shape[1:]
        synapse = potential = out = current.new_zeros(batch, width)
        outs = []
        for now in current.unbind(0):
            synapse = 0.9 * synapse + now + self.recur(out)
            potential = (0.95 * potential + 0.05 * synapse) * (1 - out)
            out = Spike.apply(potential - 0.1)
            outs.append(out)
        return torch.stack(outs)


class Network(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = Layer(CHANNELS, width), Layer(width, width)
        self.readout = nn.Linear(width, CLASSES)

    def forward(self, spikes):
        return self.readout(self.second(self.first(spikes))).mean(0)


def capture(update, x, y):
    """Records `update` on two fixed buffers; the caller fills them and replays."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            update(x, y)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        update(x, y)
    return graph


def main():
    args = arguments(420, list(FIXES))
    bins, batch, width = (100, 128, 256) if args.gpu else (10, 8, 32)
    torch.manual_seed(0)
    model = Network(width).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=args.gpu, capturable=args.gpu)
    spikes = [(torch.rand(bins, batch, CHANNELS, device=args.device) < 0.03).float() for _ in range(8)]
    labels = [torch.randint(CLASSES, (batch,), device=args.device) for _ in range(8)]

    def update(x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    graph = None
    if args.fix == "cuda_graph" and args.gpu:
        x, y = spikes[0].clone(), labels[0].clone()
        graph = capture(update, x, y)
    clock = Clock(args.steps)
    for step in range(args.steps):
        if graph is None:
            update(spikes[step % 8], labels[step % 8])
        else:
            x.copy_(spikes[step % 8])
            y.copy_(labels[step % 8])
            graph.replay()
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
