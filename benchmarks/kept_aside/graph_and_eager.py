"""Distillation: the frozen teacher is a captured CUDA graph, the student next to it is trained eagerly.

Truth: the host. The teacher costs one graph launch and runs while the host issues the student, whose
few hundred small ops take three times as long to issue as teacher and student together take to run.
Without the teacher nothing changes.

Fixes: all_graph: the student's forward, backward and optimizer in the graph too. fused:
AdamW(fused=True). no_teacher: the teacher's answers stored beforehand (its device time was hidden).
"""

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "launch-bound"]]
ALSO = []
FIXES = ["all_graph", "fused", "no_teacher"]


def encoder(width: int, depth: int, dtype: torch.dtype, device: str) -> nn.Module:
    layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, "gelu", batch_first=True)
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False).to(device, dtype)


def settings(fix: str | None) -> None:
    torch.set_float32_matmul_precision("high")


def make(size: str, fix: str | None = None) -> Step:
    settings(fix)
    device = device_of(size)
    batch, length, width, depth = (16, 256, 1024, 6) if size == "gpu" else (2, 4, 64, 1)
    small, layers = (256, 4) if size == "gpu" else (64, 1)
    teacher = encoder(width, depth, torch.bfloat16, device).eval().requires_grad_(False)
    student = nn.Sequential(
        nn.Linear(width, small), encoder(small, layers, torch.float32, device), nn.Linear(small, width)
    ).to(device)
    graphed = fix == "all_graph" and device == "cuda"
    optimizer = torch.optim.AdamW(
        student.parameters(), lr=1e-4, fused=fix == "fused" or None, capturable=graphed
    )
    x = torch.randn(batch, length, width, device=device)

    @torch.no_grad()
    def teach() -> torch.Tensor:
        return teacher(x.to(torch.bfloat16)).float()

    def learn(wanted: torch.Tensor) -> None:
        got = student(x)
        loss = nn.functional.mse_loss(got, wanted)
        loss = loss + 0.1 * (1 - nn.functional.cosine_similarity(got, wanted, dim=-1)).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    def both() -> None:
        learn(teach())

    if fix == "no_teacher":
        wanted = teach()
        return lambda: learn(wanted)
    if device == "cpu":
        return both
    if graphed:
        return capture(both)[0]
    replay, wanted = capture(teach)

    def step() -> None:
        replay()
        learn(wanted)

    return step


def capture(run: Step) -> tuple[Step, torch.Tensor]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    return graph.replay, out


if __name__ == "__main__":
    main(make)
