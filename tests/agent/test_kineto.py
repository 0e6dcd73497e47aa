"""What kineto writes about our own session is kept off; about the job's own, nothing changes."""

from __future__ import annotations

import re
import types

import pytest

from findwall.agent.tracing import kineto

KINETO_LINE = re.compile(
    r"^(USDT|STAGE|INFO|WARNING|ERROR):\d{4}-\d\d-\d\d \d\d:\d\d:\d\d .*\.cpp:\d+\] (.*)$", re.M
)

TRACES_BY_ITSELF = """
    import os
    print('before', file=sys.stderr, flush=True)
    train(30)
    os.write(2, b'between\\n')
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        train(2)
"""


def said_by_kineto(text: str) -> list[str]:
    return [words for _, words in KINETO_LINE.findall(text)]


def test_our_session_is_silent_and_the_jobs_own_speaks(warm_jobs, training):
    warm_jobs.write(training(TRACES_BY_ITSELF))
    plain = warm_jobs.plain_warm("job.py")
    run = warm_jobs.run(None)
    assert run.measurement().trace.steps >= 1
    assert said_by_kineto(run.stderr) == said_by_kineto(plain.stderr)
    between = run.stderr.index("between")
    assert run.stderr.index("before") < between
    assert not said_by_kineto(run.stderr[:between])


def test_who_asks_for_the_lines_gets_them(jobs, training):
    run = jobs.run(training("train(30)"), KINETO_LOG_LEVEL="3")
    if said_by_kineto(run.stderr):
        return
    jobs.write(training("with torch.profiler.profile(): train(2)"))
    assert not said_by_kineto(jobs.plain("job.py", KINETO_LOG_LEVEL="3").stderr), run.stderr
    pytest.skip("this torch says nothing")


def test_the_level_is_put_back_also_after_an_error():
    torch = pytest.importorskip("torch")
    level = kineto._level(torch)
    if level is None:
        pytest.skip("this torch has no such level")
    before = level.value
    with pytest.raises(RuntimeError), kineto.quiet(torch):
        assert level.value == kineto.ABOVE_ALL
        raise RuntimeError
    assert level.value == before


def test_a_torch_without_it_is_left_alone(tmp_path):
    with kineto.quiet(types.SimpleNamespace()):
        pass
    with kineto.quiet(types.SimpleNamespace(__file__=str(tmp_path / "torch" / "__init__.py"))):
        pass
