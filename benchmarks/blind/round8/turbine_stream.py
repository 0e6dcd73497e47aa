"""Online anomaly scores for a fleet of wind-turbine sensors.

One reading of every stream arrives per step. A causal stack of dilated layers (dilations 1 to 2048) predicts
it from the past; each layer remembers as many of its inputs as its dilation is long.
"""

import torch
from common import Clock, arguments
from torch import nn

WALLS = [["bandwidth", "layout-copies"]]
FIXES = {"ring": "each layer's memory is a ring written in place: nothing is shifted"}
TRUTH_STEPS = 400


class DilatedLayer(nn.Module):
    """Gated layer over the present input and the one `dilation` readings ago."""

    def __init__(self, width, dilation):
        super().__init__()
        self.dilation = dilation
        self.now, self.then = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width)

    def gate(self, x, past):
        filtered, gate = (self.now(x) + self.then(past)).chunk(2, -1)
        return x + self.out(torch.tanh(filtered) * torch.sigmoid(gate))


class ShiftedMemory:
    """The oldest input first; every new one pushes it out."""

    def __init__(self, layer, streams, width, like):
        self.past = torch.zeros(layer.dilation, streams, width, dtype=like.dtype, device=like.device)

    def oldest(self):
        return self.past[0]

    def push(self, x):
        self.past = torch.cat([self.past[1:], x.unsqueeze(0)])


class RingMemory:
    def __init__(self, layer, streams, width, like):
        self.past = torch.zeros(layer.dilation, streams, width, dtype=like.dtype, device=like.device)
        self.at = 0

    def oldest(self):
        return self.past[self.at]

    def push(self, x):
        self.past[self.at].copy_(x)
        self.at = (self.at + 1) % len(self.past)


class StreamNet(nn.Module):
    def __init__(self, sensors, width, dilations):
        super().__init__()
        self.embed = nn.Linear(sensors, width)
        self.layers = nn.ModuleList(DilatedLayer(width, d) for d in dilations)
        self.predict = nn.Linear(width, sensors)

    def forward(self, reading, memories):
        x = self.embed(reading)
        for layer, memory in zip(self.layers, memories, strict=True):
            y = layer.gate(x, memory.oldest())
            memory.push(x)
            x = y
        return self.predict(x)


@torch.inference_mode()
def main():
    args = arguments(2400, list(FIXES))
    streams, sensors, width, longest = (16384, 16, 128, 12) if args.gpu else (8, 4, 16, 4)
    torch.manual_seed(0)
    dtype = torch.bfloat16
    net = StreamNet(sensors, width, [2**i for i in range(longest)]).to(args.device, dtype).eval()
    kind = RingMemory if args.fix == "ring" else ShiftedMemory
    readings = torch.randn(64, streams, sensors, device=args.device, dtype=dtype)
    memories = [kind(layer, streams, width, readings) for layer in net.layers]
    predicted = torch.zeros_like(readings[0])
    worst = torch.zeros(streams, device=args.device, dtype=dtype)
    clock = Clock(args.steps)
    for step in range(args.steps):
        reading = readings[step % len(readings)]
        surprise = (reading - predicted).square().mean(-1)
        worst = torch.maximum(worst, surprise)
        predicted = net(reading, memories)
        clock.tick()
    clock.report()
    print("worst stream", int(worst.argmax()))


if __name__ == "__main__":
    main()
