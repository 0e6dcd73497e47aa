"""Draw posterior samples of a gravitational-wave event: a neural spline flow, inverted layer by layer.

Domain: science (simulation-based inference), own modules, fp32, inference.
Why: twenty coupling layers, each a small MLP and a rational-quadratic spline of some ninety operations on 2048 x 8
    numbers. A kernel takes two or three microseconds, the host needs more than that to issue it, and there are nearly
    two thousand of them a draw: the device waits for Python.
Trap: it is fp32, which looks like a wrong dtype; the kernels are all short pointwise and cumulative sums, which looks
    like work for fusion; larger draws would cost nearly the same time. The `.item()` comes once in 100 draws.
Fixes: cuda-graph (the draw is captured once and replayed: shapes never change).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Clock, arguments

WALLS = [["overhead", "launch-bound"]]
FIXES = ["cuda-graph"]
TRUTH_STEPS = 700
BOUND, SMALLEST = 3.0, 1e-3


def knots(raw):
    """Positions and sizes of a spline's bins on [-BOUND, BOUND]."""
    bins = raw.shape[-1]
    sizes = SMALLEST + (1 - SMALLEST * bins) * torch.softmax(raw, dim=-1)
    edges = F.pad(torch.cumsum(sizes, dim=-1), (1, 0))
    edges = 2 * BOUND * edges - BOUND
    return edges, edges[..., 1:] - edges[..., :-1]


def pick(values, index):
    return values.gather(-1, index).squeeze(-1)


def inverse_spline(y, raw, bins):
    """x and log|dx/dy| of the rational-quadratic spline whose value is y; the identity outside of its bounds."""
    raw_widths, raw_heights, raw_slopes = raw.split([bins, bins, bins - 1], dim=-1)
    x_edges, widths = knots(raw_widths)
    y_edges, heights = knots(raw_heights)
    slopes = F.pad(SMALLEST + F.softplus(raw_slopes), (1, 1), value=1.0)
    inside = (y > -BOUND) & (y < BOUND)
    y_in = y.clamp(-BOUND, BOUND)
    index = ((y_in.unsqueeze(-1) >= y_edges[..., 1:]).sum(-1, keepdim=True)).clamp(max=bins - 1)
    x0, w = pick(x_edges, index), pick(widths, index)
    y0, h = pick(y_edges, index), pick(heights, index)
    d0, d1 = pick(slopes, index), pick(slopes, index + 1)
    s = h / w
    rise = y_in - y0
    bend = d0 + d1 - 2 * s
    a = h * (s - d0) + rise * bend
    b = h * d0 - rise * bend
    c = -s * rise
    root = 2 * c / (-b - torch.sqrt((b * b - 4 * a * c).clamp(min=0)))
    x = root * w + x0
    mixed = root * (1 - root)
    below = s + bend * mixed
    above = s * s * (d1 * root * root + 2 * s * mixed + d0 * (1 - root) * (1 - root))
    log_slope = torch.log(above.clamp(min=1e-12)) - 2 * torch.log(below.clamp(min=1e-12))
    return torch.where(inside, x, y), torch.where(inside, -log_slope, torch.zeros_like(y))


class Coupling(nn.Module):
    def __init__(self, dims, context, hidden, bins):
        super().__init__()
        self.half, self.bins = dims // 2, bins
        self.net = nn.Sequential(nn.Linear(self.half + context, hidden), nn.ReLU(), nn.Linear(hidden, hidden),
                                 nn.ReLU(), nn.Linear(hidden, self.half * (3 * bins - 1)))

    def forward(self, y, context):
        kept, moved = y[:, :self.half], y[:, self.half:]
        raw = self.net(torch.cat([kept, context], dim=1)).view(y.shape[0], self.half, -1)
        moved, log_slope = inverse_spline(moved, raw, self.bins)
        return torch.cat([moved, kept], dim=1), log_slope.sum(1)


class Flow(nn.Module):
    def __init__(self, layers, dims, context, hidden, bins):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(dims, context, hidden, bins) for _ in range(layers))

    def forward(self, noise, context):
        log_density = -0.5 * noise.square().sum(1)
        for layer in self.layers:
            noise, log_slope = layer(noise, context)
            log_density = log_density - log_slope
        return noise, log_density


def graphed(flow, noise, context):
    """The flow as one replayed graph that reads and writes fixed tensors."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            flow(noise, context)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = flow(noise, context)

    def draw(new_noise, new_context):
        noise.copy_(new_noise)
        context.copy_(new_context)
        graph.replay()
        return outputs
    return draw


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    draws, layers, dims, seen, hidden = (2048, 20, 16, 32, 128) if args.gpu else (128, 3, 4, 8, 16)

    device = args.device
    flow = Flow(layers, dims, seen, hidden, bins=8).to(device).eval()
    events = torch.randn(64, seen, device=device)
    mean, evidence = torch.zeros(dims, device=device), torch.zeros((), device=device)

    with torch.inference_mode():
        draw = flow
        if args.fix == "cuda-graph" and args.gpu:
            draw = graphed(flow, torch.randn(draws, dims, device=device), torch.zeros(draws, seen, device=device))

        clock = Clock(args.steps)
        for step in range(args.steps):
            noise = torch.randn(draws, dims, device=device)
            context = events[step % 64].expand(draws, -1)
            samples, log_density = draw(noise, context)
            mean.lerp_(samples.mean(0), 0.05)
            evidence.lerp_(log_density.mean(), 0.05)
            if step % 100 == 99:
                print(f"draw {step + 1} evidence {evidence.item():.3f}", flush=True)
            clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
