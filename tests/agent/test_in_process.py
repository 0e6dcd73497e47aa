"""Real loops on the CPU, several sessions in one process: steps found, and failures survived."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import pytest

pytest.importorskip("torch")

STEPS = {
    "accumulation": (
        """
        for i in range(120):
            model(torch.randn(4, 8)).mean().backward()
            if i % 4 == 3:
                optimizer.step(); optimizer.zero_grad()
        """,
        30,
    ),
    "two-optimizers": (
        """
        other = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(30):
            model(torch.randn(4, 8)).mean().backward()
            other.step(); optimizer.step()
        """,
        31,
    ),
    "closure": (
        """
        def closure():
            optimizer.zero_grad()
            loss = model(torch.randn(4, 8)).mean()
            loss.backward()
            return loss
        for i in range(30):
            optimizer.step(closure)
        """,
        30,
    ),
    "replaced-while-steps-pass": (
        """
        for i in range(40):
            model(torch.randn(4, 8)).mean().backward()
            optimizer.step()
            if i == 4:
                session.engine.let_pass(3, session.engine.gauge)
            if i == 6:
                former, optimizer = optimizer, torch.optim.SGD(model.parameters(), lr=0.1)
                session.gate.open()
        """,
        40,
    ),
    "nested": (
        """
        class Outer(torch.optim.SGD):
            def step(self, closure=None):
                optimizer.step()
                return super().step(closure)
        outer = Outer(model.parameters(), lr=0.1)
        for i in range(30):
            model(torch.randn(4, 8)).mean().backward()
            outer.step()
        """,
        30,
    ),
    "skipped-by-the-scaler": (
        """
        scaler = torch.amp.GradScaler('cpu')
        for i in range(30):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 8)).mean() * (float('inf') if i % 3 == 0 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer); scaler.update()
        """,
        30,
    ),
    "a-step-that-fails": (
        """
        class Bad(torch.optim.SGD):
            def step(self, closure=None):
                raise ValueError
        bad = Bad(model.parameters(), lr=0.1)
        for i in range(30):
            try: bad.step()
            except ValueError: pass
            model(torch.randn(4, 8)).mean().backward()
            optimizer.step()
        """,
        30,
    ),
    "in-backward": (
        """
        each = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(lambda p: each[p].step())
        data = torch.utils.data.DataLoader(torch.randn(160, 8), batch_size=4)
        for x in data:
            model(x).mean().backward()
        """,
        43,
    ),
}

OTHERS = {
    "evaluation": """
        session.options = Options(wait=2, steps=20, trace=False, out='evaluation', verdict=False)
        session.engine.options = session.options
        for i in range(8):
            for _, x in zip(range(4), torch.utils.data.DataLoader(torch.randn(40, 8), batch_size=4)):
                train(1)
            model.eval()
            with torch.no_grad():
                for x in torch.utils.data.DataLoader(torch.randn(80, 8), batch_size=4): model(x)
            model.train()
        """,
    "own-profiler-on-a-schedule": """
        from torch.profiler import profile, schedule, ProfilerActivity
        got = []
        with profile(activities=[ProfilerActivity.CPU],
                     schedule=schedule(wait=9, warmup=1, active=2, repeat=2),
                     on_trace_ready=lambda p: got.append(len(p.events()))) as prof:
            for _ in range(40):
                train(1)
                prof.step()
        out = [len(got), all(got)]
        """,
    "own-profiler-all-the-time": """
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
            train(40)
        out = len(prof.events()) > 100
        """,
    "plain-functions": """
        import findwall.agent.step_ends.lookout as module
        module.REGION_WAIT_NS = 0
        w = torch.randn(8, 8)
        @torch.no_grad()
        def infer(x):
            with torch.no_grad():
                x = x @ w
            return torch.relu(x)
        before = torch.no_grad.__exit__
        for _ in range(60): infer(w)
        """,
    "inference-first": """
        for _ in range(30): session.listener.forward_ended(7, False)
        train(5)
        """,
    "short": """
        session.options = session.engine.options = Options(out='short', verdict=False)
        train(12)
        """,
    "no-steps": "out = torch.ones(2).sum().item()",
    "pickled-and-copied": """
        import pickle, copy
        pickle.dumps(model); copy.deepcopy(optimizer)
        train(30)
        """,
    "forward": """
        import copy, pickle
        from findwall.agent.step_ends.forward import wrap_call
        from findwall.agent.step_ends.step_gate import Gate
        import torch._dynamo
        from torch._dynamo.utils import counters
        torch._dynamo.reset(); counters.clear()
        calls, x = [], torch.ones(1, 8)
        take_off = wrap_call(torch, model, Gate(), lambda key, gradients: calls.append(gradients))
        model(x)
        with torch.no_grad(): model(x)
        compiled = torch.compile(model, backend='eager', fullgraph=True)
        compiled(x)
        out = {'calls': len(calls)}
        copy.deepcopy(model)(x); pickle.loads(pickle.dumps(model))(x)
        out['copied'] = len(calls)
        compiled(x); take_off(); compiled(x)
        out['graphs'] = [counters['stats']['unique_graphs'], dict(counters['graph_break'])]
        out['off'] = '_compiled_call_impl' not in model.__dict__
        model.compile(backend='eager')
        calls.clear()
        take_off = wrap_call(torch, model, Gate(), lambda key, gradients: calls.append(gradients))
        model(x); model(x); take_off(); model(x)
        out['compiled_in_place'] = len(calls)
        """,
    "a-gpu-in-name-only": """
        import types
        class Event:
            clock = 0.0
            def __init__(self, enable_timing): self.at = 0.0
            def record(self, stream): Event.clock += 2.0; self.at = Event.clock
            def query(self): return True
            def elapsed_time(self, other): return other.at - self.at
        capturing = []
        stand_in = dict(
            Event=Event, is_initialized=lambda: True, device_count=lambda: 2,
            memory_allocated=lambda d=0: d * 100, memory_reserved=lambda d=0: 4096,
            memory_stats=lambda d=0: {'segment.all.allocated': 3, 'num_alloc_retries': 0},
            max_memory_allocated=lambda d=0: 1234, get_device_name=lambda d=0: 'Card',
            get_device_properties=lambda d=0: types.SimpleNamespace(total_memory=9999, name='Card'),
            current_stream=lambda d=0: d, is_current_stream_capturing=lambda: bool(capturing))
        whole = {name: getattr(torch.cuda, name) for name in stand_in}
        vars(torch.cuda).update(stand_in)
        train(4)
        capturing.append(True); train(5); capturing.clear()
        graph = types.SimpleNamespace()
        for _ in range(30): session.listener.graph_replayed(graph)
        vars(torch.cuda).update(whole)
        """,
    "plain-loop": """
        session.listener.loop_chosen(5, 'other.py:1')
        session.listener.loop_chosen(7, 'job.py:3')
        out = session.listener.wants_loop, session.listener.at_work(), session.listener.device_work()
        for _ in range(6): session.listener.loop_turned(5)
        for _ in range(40):
            torch.ones(8, 8) @ torch.ones(8, 8)
            session.listener.loop_turned(7)
        """,
    "a-loop-before-training": """
        session.listener.loop_chosen(7, 'job.py:3')
        for _ in range(5): session.listener.loop_turned(7)
        train(30)
        out = session.listener.wants_loop
        """,
    "findwall-breaks": """
        import findwall.agent.stages.timing_stages as stages
        whole, stages.Timing.close = stages.Timing.close, lambda *a: 1 / 0
        out = list(train(30).shape)
        stages.Timing.close = whole
        """,
    "evaluation-first": """
        import time
        import findwall.agent.stages.trace_stages as stages
        usual, stages.LINES_AT_MOST_NS = stages.LINES_AT_MOST_NS, 10**7
        def until_done(step):
            end = time.monotonic() + 120
            while session.engine.record.phase != 'done' and time.monotonic() < end: step()
        until_done(lambda: (time.sleep(0.0005), session.listener.forward_ended(id(model), False)))
        out = session.engine.record.phase, session.engine.record.step_source
        train(1)
        until_done(lambda: train(1))
        stages.LINES_AT_MOST_NS = usual
        """,
    "full-disk": """
        import findwall.agent.ending.runfolder as runfolder
        def full(*a, **b): raise OSError(28, 'No space left on device')
        whole, runfolder.write_atomically = runfolder.write_atomically, full
        out = list(train(30).shape)
        runfolder.write_atomically = whole
        """,
}

DRIVER = """
    import json, sys
    import msgspec
    from findwall.agent.options import Options
    from findwall.agent.session import Session

    found = {}
    for name, source in json.load(open('cases.json')).items():
        scope = {'Options': Options, 'out': None}
        exec(TRAINING, scope)
        print(name, file=sys.stderr)
        session = Session.begin(name, [name], Options(wait=2, steps=6, out=name, verdict=False))
        scope['session'] = session
        exec(source, scope)
        session.close()
        found[name] = {'out': scope['out'], **msgspec.to_builtins(session.engine.record)}
    print(json.dumps(found))
"""


def run_all(jobs: Any, training: Any) -> tuple[dict[str, Any], str]:
    cases = {name: source for name, (source, _) in STEPS.items()} | OTHERS
    (jobs.folder / "cases.json").write_text(json.dumps({k: textwrap.dedent(v) for k, v in cases.items()}))
    jobs.write(f"TRAINING = {training('')!r}\n" + textwrap.dedent(DRIVER))
    run = jobs.plain_warm("job.py")
    assert run.code == 0, run.stderr
    return json.loads(run.stdout), run.stderr


def test_loops_of_many_kinds(jobs, training):
    """One test, because the process it needs takes seconds to start."""
    found, stderr = run_all(jobs, training)
    for name, (_, steps) in STEPS.items():
        seen = found[name]["steps_seen"], found[name]["step_source"], found[name]["trace"]["file"]
        assert seen == (steps, "optimizer", "trace.json"), (name, found[name]["notes"], found[name]["trace"])
    check_evaluation(found["evaluation"])
    check_inference_first(found["inference-first"])
    check_own_profilers(found["own-profiler-on-a-schedule"], found["own-profiler-all-the-time"])
    check_short_jobs(found["short"], found["no-steps"], stderr)
    trained = found["evaluation-first"]
    assert (trained["out"], trained["step_source"], trained["phase"]) == (
        ["done", "forward"],
        "optimizer",
        "done",
    )
    assert trained["trace"]["file"] == "trace.json" and "training step (forward)" in trained["notes"][0]
    regions = found["plain-functions"]
    assert (regions["step_source"], regions["trace"]["file"]) == ("no-grad-region", "trace.json")
    assert regions["steps_seen"] in (43, 44)  # 16 are waited for
    check_loops(found["plain-loop"], found["a-loop-before-training"])
    assert found["pickled-and-copied"]["steps_seen"] == 30
    check_failures(found, stderr)
    check_forward(found["forward"])
    check_gpu(found["a-gpu-in-name-only"])


def check_loops(plain: dict[str, Any], trained: dict[str, Any]) -> None:
    """The document says which loop's turn is the step, the last one; anything better takes over."""
    assert plain["out"] == [True, True, None]
    assert (plain["step_source"], plain["trace"]["file"]) == ("loop", "trace.json")
    assert [note for note in plain["notes"] if "one turn of the loop at" in note] == [
        "a step is one turn of the loop at job.py:3: nothing else in this job says where a step ends"
    ]
    assert (trained["step_source"], trained["out"]) == ("optimizer", False)
    assert not [note for note in trained["notes"] if "one turn of the loop" in note]


def check_inference_first(found: dict[str, Any]) -> None:
    """The training is what counts, also where it began while the inference before it was measured."""
    assert found["step_source"] == "optimizer" and found["steps"]["host_ns"]
    assert "other steps before its first training step (forward)" in found["notes"][0]


def check_evaluation(found: dict[str, Any]) -> None:
    """An evaluation inside training is no step."""
    assert found["steps_seen"] == 32
    assert sum(found["steps"]["evaluated"]) in (6, 7)
    assert found["trace"]["why_not"] == "--no-trace was given; leave it out"
    assert found["samples_per_step"] == pytest.approx(4, rel=0.3)  # and its batches are none of training's


def check_own_profilers(scheduled: dict[str, Any], always: dict[str, Any]) -> None:
    """The job's own profiler comes first, and gets all it would get without findwall."""
    assert scheduled["out"] == [2, True]
    assert len(scheduled["steps"]["host_ns"]) == 6
    assert not any("stopped measuring" in note for note in scheduled["notes"])
    assert always["out"] is True
    assert always["trace"]["why_not"] == "the job's own profiler is running"
    assert len(always["steps"]["host_ns"]) == 6


def check_short_jobs(short: dict[str, Any], none: dict[str, Any], stderr: str) -> None:
    assert len(short["steps"]["host_ns"]) in (5, 6)
    assert "12 steps, before its warm-up was over" in short["notes"][0]
    assert short["trace"]["why_not"] == (
        "the job ended after 12 steps; a longer run, or findwall run --wait 2 --steps 5 …, gives one"
    )
    assert none["out"] == 2.0
    assert "no step was found" in none["notes"][0]
    assert "findwall: no step was found" in stderr


def check_failures(found: dict[str, Any], stderr: str) -> None:
    """One line each, and the job runs on."""
    assert found["findwall-breaks"]["out"] == found["full-disk"]["out"] == []
    line = "findwall: stopped measuring (ZeroDivisionError: division by zero); the job runs on"
    assert stderr.count(line) == 1
    assert stderr.count("No space left on device") == 1


def check_forward(found: dict[str, Any]) -> None:
    """Told of each eager call, the wrap stays out of copies, pickles and compiled graphs, and comes off."""
    assert found["out"] == {"calls": 2, "copied": 2, "graphs": [1, {}], "off": True, "compiled_in_place": 2}


def check_gpu(found: dict[str, Any]) -> None:
    """Steps by device events on the device in use; a captured optimizer makes the graph's replay the step."""
    assert (found["device_kind"], found["device_name"], found["step_source"]) == (
        "gpu",
        "Card",
        "graph-replay",
    )
    assert found["steps"]["device_ns"] == [2_000_000] * 6
    assert (found["peak_memory"], found["total_memory"]) == (1234, 9999)
    assert found["trace"]["why_not"] == "the profiler gave no kernels"
    assert found["telemetry"]["notes"]
