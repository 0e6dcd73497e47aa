"""What it costs to start a small kernel: host seconds eagerly, device seconds inside a CUDA graph."""

from __future__ import annotations

import time
from typing import Any

from findwall.machine.ceilings.clocks_used import Clock
from findwall.machine.ceilings.measured_report import Rate, cost_of

# Fewer than the launch queue holds (about a thousand), so that the host never waits for the device.
LAUNCHES = 400


def eager_launch(torch: Any, device: Any) -> Rate:
    """Host time of one small op, from Python's call to its return."""
    small = torch.ones(16, device=device)
    synchronize = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    times = []
    for _ in range(12):
        synchronize()
        start = time.perf_counter()
        for _ in range(LAUNCHES):
            small.add_(1.0)
        times.append((time.perf_counter() - start) / LAUNCHES)
    synchronize()
    return cost_of("eager launch", times[2:], f"{LAUNCHES} in-place adds of 16 numbers")


def graph_launch(torch: Any, device: Any, clock: Clock) -> Rate:
    """Device time of one small kernel when a graph launches it: no host in between."""
    small = torch.ones(16, device=device)
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        small.add_(1.0)
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            small.add_(1.0)
    graph.replay()
    times = [seconds / LAUNCHES for seconds in clock.each(graph.replay, 10)]
    return cost_of("graph launch", times, f"{LAUNCHES} in-place adds of 16 numbers in one graph")
