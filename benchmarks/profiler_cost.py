"""What a recorded event costs the host: launch-bound jobs timed without the profiler and traced with it.

    python benchmarks/profiler_cost.py record FOLDER   on a GPU: six jobs, six sets of options each, in turns
    python benchmarks/profiler_cost.py solve FOLDER    anywhere: the cost at which it replays the true step

`solve` writes results/profiler_cost.json. The host's pace is held at 1: all of the difference between the
traced step and the true one is put on the events, so a cost says what one event took with all around it.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results" / "profiler_cost.json"
OPTIONS: dict[str, dict[str, bool]] = {
    "plain": {},
    "shapes": {"record_shapes": True},
    "memory": {"profile_memory": True},
    "stack": {"with_stack": True},
    "shapes_memory": {"record_shapes": True, "profile_memory": True},
    "all": {"record_shapes": True, "profile_memory": True, "with_stack": True},
}
STEPS, ROUNDS = 20, 3  # timed at once, and how often before and after each trace
HIGHEST_US = 30.0  # beyond any cost
HALVINGS = 30

Step = Callable[[], Any]


def _jobs(torch: Any) -> dict[str, Step]:
    """Jobs whose device waits for the host nearly all the time."""
    import torchvision
    from torch import nn

    def trained(model: Any, optimizer: Any, given: Any) -> Step:
        def step() -> None:
            optimizer.zero_grad()
            model(given).square().mean().backward()
            optimizer.step()

        return step

    def randn(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda")

    mlp = nn.Sequential(*(layer for _ in range(24) for layer in (nn.Linear(256, 256), nn.ReLU()))).cuda()
    plain = nn.Sequential(*(nn.Linear(128, 128) for _ in range(20))).cuda()
    layer = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 8, enable_nested_tensor=False).cuda()
    images = [
        one for _ in range(16) for one in (nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
    ]
    network = nn.Sequential(*images).cuda()
    resnet = torchvision.models.resnet18().cuda()
    layers = [nn.Linear(512, 512).cuda().half() for _ in range(30)]
    norm, token = nn.LayerNorm(512).cuda().half(), randn(1, 512).half()

    def decode() -> None:
        with torch.no_grad():
            state = token
            for one in layers:
                state = state + norm(one(state)).view(1, 512).transpose(0, 1).reshape(1, 512)

    return {
        "mlp_adam": trained(mlp, torch.optim.Adam(mlp.parameters()), randn(64, 256)),
        "loop_adamw": trained(plain, torch.optim.AdamW(plain.parameters(), foreach=False), randn(32, 128)),
        "encoder_sgd": trained(encoder, torch.optim.SGD(encoder.parameters(), lr=0.01), randn(4, 64, 256)),
        "resnet18_sgd": trained(resnet, torch.optim.SGD(resnet.parameters(), lr=0.01), randn(2, 3, 64, 64)),
        "images_rmsprop": trained(network, torch.optim.RMSprop(network.parameters()), randn(1, 16, 32, 32)),
        "decode": decode,
    }


def record(folder: Path) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    def timed(step: Step) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / STEPS * 1e3

    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for job, step in _jobs(torch).items():
        timed(step)
        for name, options in OPTIONS.items():
            times = [timed(step) for _ in range(ROUNDS)]
            plan = schedule(wait=0, warmup=2, active=4, repeat=1)
            with profile(
                activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], schedule=plan, **options
            ) as recorded:
                for _ in range(6):
                    step()
                    recorded.step()
                torch.cuda.synchronize()
            times += [timed(step) for _ in range(ROUNDS)]
            file = f"{job}.{name}.json.gz"
            recorded.export_chrome_trace(str(folder / file))
            rows.append(
                {"file": file, "step_ms": statistics.median(times), "low": min(times), "high": max(times)}
            )
    of = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
    (folder / "steps.json").write_text(json.dumps({**of, "rows": rows}, indent=1))


def solve(folder: Path) -> None:
    from findwall.examine import facts_of
    from findwall.readers import open_run
    from findwall.replay.calibrate import Calibration, play_with

    told = json.loads((folder / "steps.json").read_text())
    for row in told["rows"]:
        graph = facts_of(open_run([folder / row["file"]]), None)[0].graph
        low, high = 0.0, HIGHEST_US
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            slower = play_with(graph, Calibration(middle)).step > row["step_ms"] * 1e6
            low, high = (middle, high) if slower else (low, middle)
        row["cost_us"] = round(low, 2)
        print(f"{row['file']:34s} {row['step_ms']:8.2f} ms {row['cost_us']:6.2f} us")
    costs = sorted(row["cost_us"] for row in told["rows"])
    told["cost_us"] = {"low": costs[0], "median": statistics.median(costs), "high": costs[-1]}
    print(told["cost_us"])
    RESULTS.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("record", "solve"):
        sys.exit(__doc__)
    {"record": record, "solve": solve}[sys.argv[1]](Path(sys.argv[2]))
