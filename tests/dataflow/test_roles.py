"""What each op of a step is for, line by line of jobs that torch really runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from dataflow_observed import benchmark, flow_of
from findwall.dataflow.linking import Flow
from findwall.dataflow.roles import ROLES, roles
from findwall.model.dataflow import LINE

JOBS = benchmark("unneeded_jobs")
TEXT = Path(str(JOBS.__file__)).read_text().splitlines()


def roles_at(flow: Flow, words: str, job: str) -> set[str]:
    """Of the ops that lines of a job call which hold these words, views left out."""
    first = next(at for at, line in enumerate(TEXT) if line.startswith(f"def {job}("))
    end = next((at for at in range(first + 1, len(TEXT)) if re.match(r"\S", TEXT[at])), len(TEXT))
    wanted = {f"{LINE}unneeded_jobs.py:{at + 1}" for at in range(first, end) if words in TEXT[at]}
    assert wanted, words
    told, observed = roles(flow), flow.observed
    works = set(flow.head[flow.wrote].tolist())
    found = set()
    for row in works:
        line = int(observed.line[row])
        if row >= 0 and told[row] >= 0 and line >= 0 and observed.names[line] in wanted:
            found.add(ROLES[told[row]])
    return found


EXPECTED = [
    ("plain_distillation", "target = teacher(x)", {"teacher"}),
    ("plain_distillation", "value.backward()", {"backward", "loss"}),  # the gradient it begins with
    ("plain_distillation", "optimizer.step()", {"update"}),
    ("plain_training", "clip_grad_norm_", {"update"}),
    ("plain_training", "mine.lerp_", {"average"}),
    ("plain_training", "optimizer.step()", {"update"}),
    ("teacher_in_graph", "target = teacher(x)", {"forward"}),  # in the graph, as it is called
    ("evaluation_in_every_step", "F.cross_entropy(model(held_out)", {"evaluation", "metric"}),
    ("forward_again_for_metric", "right = again", {"metric"}),
]


@pytest.mark.parametrize(("job", "words", "expected"), EXPECTED)
def test_lines_have_their_role(job: str, words: str, expected: set[str], tmp_path: Path) -> None:
    flow = flow_of(JOBS.JOBS[job](JOBS.Setting("cpu", 32, edited=False)), tmp_path)
    assert roles_at(flow, words, job) == expected


def test_batches_are_data(tmp_path: Path) -> None:
    flow = flow_of(JOBS.JOBS["plain_training"](JOBS.Setting("cpu", 32, edited=False)), tmp_path)
    told = {
        ROLES[role]
        for row, role in enumerate(roles(flow).tolist())
        if role >= 0 and flow.observed.names[flow.observed.name[row]] == "aten::index_select"
    }
    assert told == {"data"}
