"""Whole jobs with `--memory`: their results, what is left behind, and what is found in the run folder."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import jobs as running
from findwall.model.memory_history import KINDS, RecordedRank
from findwall.readers.run_folder import read_run_folder

pytest.importorskip("torch")
OPTIONS = ("--wait", "2", "--steps", "6", "--memory")

JOB = """
    import hashlib
    loss = train(400)
    whole = b"".join(one.detach().numpy().tobytes() for one in model.parameters())
    print(hashlib.sha256(whole).hexdigest(), float(loss.detach()))
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[running.Outcome, running.Outcome]:
    own = running.Jobs(tmp_path_factory.mktemp("memory"), warm=True)
    own.write(running.training(JOB))
    return own.plain_warm("job.py"), own.run(None, options=OPTIONS)


def test_results_are_the_same_to_the_bit(measured: tuple[running.Outcome, running.Outcome]) -> None:
    plain, with_memory = measured
    assert (with_memory.code, with_memory.stdout) == (0, plain.stdout)
    assert with_memory.measurement().trace.file == "trace.json"


def test_the_trace_says_that_it_holds_memory(measured: tuple[running.Outcome, running.Outcome]) -> None:
    """Its header tells readers what the profiler's cost is of."""
    _, with_memory = measured
    path = with_memory.folder / "rank0" / "trace.json"
    packed = path.with_name("trace.json.gz")
    plain = gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    content = json.loads(plain)
    assert content["profile_memory"] == 1
    assert any(event.get("name") == "[memory]" for event in content["traceEvents"])


def test_what_lay_where_when_the_trace_ended_is_read_back(
    measured: tuple[running.Outcome, running.Outcome],
) -> None:
    _, with_memory = measured
    rank = read_run_folder(with_memory.folder).first
    assert isinstance(rank, RecordedRank) and rank.memory is None and rank.known_at_trace is not None
    known = {KINDS[kind] for kind in rank.known_at_trace.kind.tolist()}
    assert {"parameters", "optimizer-state"} <= known
    assert rank.totals is not None and rank.totals.step and rank.totals.limit
    assert (with_memory.folder / "rank0" / "known-trace.json").stat().st_mode & 0o077 == 0


def test_a_loop_leaves_nothing_behind_with_it(warm_jobs: running.Jobs) -> None:
    """The same as without, which `tests/apply/test_left_behind.py` looks at attribute by attribute."""
    import attributes

    warm_jobs.write(Path(attributes.__file__).read_text(), "attributes.py")
    source = """
        import json, sys, gc
        import findwall
        from attributes import changed, findwalls, look

        train(30)
        before = look()
        with findwall.measure(memory=True, wait=2, steps=6, verdict=False, out="run") as m:
            train(600)
        after = look()
        trace = m._session.engine.record.trace.file
        print(json.dumps([trace, sorted(changed(before, after)), sorted(findwalls(after))]))
    """
    warm_jobs.write(running.training(source))
    done = warm_jobs.plain_warm("job.py")
    assert done.code == 0, done.stderr
    trace, changed, findwalls = json.loads(done.stdout.splitlines()[-1])
    assert trace == "trace.json" and findwalls == []
    assert [name for name in changed if "memory" in name or "profil" in name] == []
