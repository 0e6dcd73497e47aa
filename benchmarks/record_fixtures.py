"""Record the small traces that the tests read: tiny models, two or three steps, each file under 300
kB.

    python benchmarks/record_fixtures.py --out DIR

writes `DIR/fixtures.tar` with one `NAME.json.gz` a kind and `fixtures.json` (GPU, driver, versions,
command, date). Every kind is recorded in a process of its own: a profiler session changes the ones
after it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LIMIT_BYTES = 300_000
Step = Callable[[], object]


class Block(nn.Module):
    def __init__(self, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def blocks(depth: int = 2) -> nn.Module:
    return nn.Sequential(*[Block() for _ in range(depth)]).to(DEVICE, torch.bfloat16)


def batch() -> torch.Tensor:
    return torch.randn(8, 256, 256, device=DEVICE, dtype=torch.bfloat16)


def training(compiled: bool = False) -> Step:
    model, x = blocks(), batch()
    forward = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        forward(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def inference() -> Step:
    model, x = blocks(depth=3).eval(), batch()

    @torch.no_grad()
    def step() -> torch.Tensor:
        return model(x)

    return step


def cuda_graph_replay() -> Step:
    step = inference()
    if DEVICE == "cpu":
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


KINDS: dict[str, tuple[Callable[[], Step], dict[str, bool]]] = {
    "eager_training": (training, {}),
    "compiled_training": (lambda: training(compiled=True), {}),
    "cuda_graph_replay": (cuda_graph_replay, {}),
    "inference": (inference, {}),
    "python_stacks": (inference, {"with_stack": True}),
    "memory_events": (training, {"profile_memory": True}),
}


def record(kind: str, path: Path) -> None:
    make, options = KINDS[kind]
    torch.manual_seed(0)
    step = make()
    for _ in range(5):
        step()
    activities = [torch.profiler.ProfilerActivity.CPU]
    if DEVICE == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    active = 2 if options else 3
    with torch.profiler.profile(
        activities=activities,
        record_shapes=True,
        schedule=torch.profiler.schedule(wait=1, warmup=2, active=active, repeat=1),
        on_trace_ready=lambda session: session.export_chrome_trace(str(path)),
        **options,
    ) as session:
        for _ in range(3 + active):
            step()
            session.step()


def driver() -> str | None:
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except (ImportError, OSError, RuntimeError):
        pass  # no binding here; the tool may still be
    except Exception as problem:  # pynvml's errors share no base with the standard ones
        print(f"no driver version: {problem}", file=sys.stderr)
    try:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(query, capture_output=True, text=True, check=True, timeout=20).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def machine() -> dict[str, Any]:
    return {
        "gpu": torch.cuda.get_device_name() if DEVICE == "cuda" else None,
        "driver": driver() if DEVICE == "cuda" else None,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "command": "python benchmarks/record_fixtures.py",
        "date": datetime.date.today().isoformat(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    out = Path(arguments.out)
    if arguments.kind:
        record(arguments.kind, out / f"{arguments.kind}.json.gz")
        return
    out.mkdir(parents=True, exist_ok=True)
    notes: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place, tarfile.open(out / "fixtures.tar", "w") as archive:
        for kind, (_, options) in KINDS.items():
            command = [sys.executable, __file__, "--out", place, "--kind", kind]
            path = Path(place) / f"{kind}.json.gz"
            said = subprocess.run(command, capture_output=True, text=True, timeout=120)
            size = path.stat().st_size if path.exists() else None
            print(f"{kind:20} {size} bytes" if size else f"{kind:20} FAILED {said.stderr[-400:]}", flush=True)
            if size:
                archive.add(path, arcname=path.name)
                notes[kind] = {**machine(), "options": options, "bytes": size}
                if size > LIMIT_BYTES:
                    print(f"{kind} is over {LIMIT_BYTES} bytes", flush=True)
        listing = Path(place) / "fixtures.json"
        listing.write_text(json.dumps(notes, indent=1))
        archive.add(listing, arcname=listing.name)


if __name__ == "__main__":
    main()
