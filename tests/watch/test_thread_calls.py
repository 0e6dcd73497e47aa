"""What a thread was doing, told by stacks as py-spy found them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import drawn
from findwall.model.watched import SeenStack, StackFrame
from findwall.watch.thread_calls import Doings, doings, interval, is_worker, reads_only
from recorded_looks import stacks, texts

OWN = "/home/user/job/train.py"
TORCH = "/opt/env/lib/python3.11/site-packages/torch"
MODEL = "/opt/env/lib/python3.11/site-packages/transformers/models/llama/modeling_llama.py"


def seen(*frames: tuple[str, str], lock: bool = False, running: bool = True, count: int = 1) -> SeenStack:
    """Frames as (function, file), innermost first; all on line 7."""
    return SeenStack(tuple(StackFrame(name, file, 7) for name, file in frames), lock, running, count)


def looked(job: str) -> Doings:
    return doings(stacks(job), texts(job))


@pytest.mark.parametrize(
    ("job", "doing", "least", "line"),
    [
        ("starved_loader", ("loader",), 0.6, "starved_loader.py:23"),
        ("chatty_logger", ("python",), 0.6, "chatty_logger.py:20"),
        ("one_by_one", ("reads", "python"), 0.7, "one_by_one.py:17"),
        ("two_stages", ("loader",), 0.8, "two_stages.py:12"),
        ("compute", ("ops",), 0.9, "compute.py:10"),
    ],
)
def test_recorded_jobs_are_seen_where_their_wall_is(
    job: str, doing: tuple[str, ...], least: float, line: str
) -> None:
    found = looked(job).of(*doing)
    assert found.low < found.share < found.high or found.share == 1.0
    assert found.share >= least
    assert line in [spot.place for spot, _ in found.spots[:2]]


def test_a_worker_is_told_by_its_loop_and_seen_at_its_own_line() -> None:
    made = stacks("two_stages", "worker_dumps")
    assert all(is_worker(stack) for stack in made)
    assert doings(made, texts("two_stages")).all().spots[0][0].place in ("two_stages.py:8", "two_stages.py:9")
    assert not any(is_worker(stack) for stack in stacks("two_stages"))


@pytest.mark.parametrize(
    ("stack", "doing"),
    [
        (seen(("main", OWN), lock=True), "python"),
        (seen(("main", OWN)), "ops"),  # torch gives the lock away while an op runs
        (seen(("main", OWN), running=False), "waits"),
        (seen(("dumps", "/usr/lib/python3.11/json/__init__.py"), ("main", OWN)), "python"),
        (seen(("forward", f"{TORCH}/nn/modules/linear.py"), ("main", OWN)), "ops"),
        (seen(("_call_impl", f"{TORCH}/nn/modules/module.py"), ("main", OWN), lock=True), "ops"),
        (
            seen(("_engine_run_backward", f"{TORCH}/autograd/graph.py"), ("main", OWN), running=False),
            "stalls",
        ),
        (seen(("save", f"{TORCH}/serialization.py"), ("main", OWN)), "python"),
        (seen(("__next__", f"{TORCH}/utils/data/dataloader.py"), ("main", OWN), running=False), "loader"),
        (seen(("all_reduce", f"{TORCH}/distributed/distributed_c10d.py"), ("main", OWN)), "collective"),
        (seen(("compile", f"{TORCH}/_dynamo/convert_frame.py"), ("main", OWN), lock=True), "compiles"),
        # A model's own Python leads from op to op, and so does a library's that calls ops.
        (
            seen(("forward", OWN), ("_call_impl", f"{TORCH}/nn/modules/module.py"), ("main", OWN), lock=True),
            "ops",
        ),
        (seen(("forward", MODEL), ("main", OWN)), "ops"),
        (
            seen(("__enter__", "/usr/lib/python3.11/contextlib.py"), ("w", f"{TORCH}/amp.py"), lock=True),
            "ops",
        ),
        (seen(("resize", f"{TORCH[:-6]}/PIL/Image.py"), ("main", OWN)), "python"),
        (seen(("get", "/usr/lib/python3.11/queue.py"), ("main", OWN), running=False), "waits"),
        (seen(("synchronize", f"{TORCH}/cuda/__init__.py"), ("main", OWN)), "reads"),
    ],
)
def test_a_stack_says_what_its_thread_does(stack: SeenStack, doing: str) -> None:
    assert doings([stack], {}).shares() == {doing: 1.0}


def test_a_job_that_still_imports_says_nothing_of_how_it_runs() -> None:
    importing = seen(("exec_module", "<frozen importlib._bootstrap_external>"), ("main", OWN), count=9)
    found = doings([importing, seen(("main", OWN), lock=True)], {})
    assert (found.starting, found.looks) == (9, 1)


def test_python_between_the_ops_of_a_line_is_issuing_them() -> None:
    """With the lock in half of the looks a line calls ops; with it in all of them it runs Python."""
    issuing = [seen(("main", OWN), lock=True, count=5), seen(("main", OWN), count=5)]
    assert doings(issuing, {}).shares() == {"ops": 1.0}
    assert (
        doings([seen(("main", OWN), lock=True, count=9), seen(("main", OWN))], {}).of("python").share == 0.9
    )


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        ("total += loss.item()", True),
        ("print(loss.item())", True),
        ("highest = max(score.item() for score in outputs.detach().flatten())", True),
        ("history.append(float(loss.item()))", True),
        ("for value in scores.tolist():", True),
        ("mean = total + loss.item()", True),
        ("loss = model(inputs).item()", False),  # the model computes there too
        ("norm = (weight @ weight).cpu()", False),
        ("optimizer.step()", False),
        ("score.item() for score in", False),  # a part of a longer statement
        ("", False),
    ],
)
def test_a_line_that_only_reads_is_told_from_one_that_also_computes(line: str, reads: bool) -> None:
    assert reads_only(line) is reads
    found = doings([seen(("main", OWN))], {f"{OWN}:7": line})
    assert set(found.shares()) == ({"reads"} if reads else {"ops"})


@drawn(20)
@given(st.integers(0, 300), st.integers(0, 300))
def test_more_looks_make_a_share_surer(count: int, more: int) -> None:
    total = count + more
    low, high = interval(count, total)
    assert 0.0 <= low <= (count / total if total else 0.0) + 1e-12
    assert (count / total if total else 1.0) - 1e-12 <= high <= 1.0
    nearer = interval(4 * count, 4 * total)
    assert nearer[1] - nearer[0] <= high - low + 1e-12


def test_nothing_seen_proves_nothing() -> None:
    found = doings([], {}).of("python")
    assert (found.share, found.low, found.high) == (0.0, 0.0, 1.0)
