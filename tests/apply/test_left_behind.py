"""After a run torch and Python are as they were: every attribute, not those that the registry lists."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

import attributes
import jobs as running

pytest.importorskip("torch")

WORK = """
    import gc, io, json, os, signal, sys, time, warnings
    import torch

    warnings.simplefilter("ignore")

    def work(kind=None, steps=24):
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        optimizer = (kind or torch.optim.Adam)(model.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
        loader = torch.utils.data.DataLoader(torch.randn(4 * steps, 8), batch_size=4, num_workers=0)
        for batch in loader:
            model(batch).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        model.eval()
        with torch.no_grad():
            model(batch)
        torch.save(model.state_dict(), io.BytesIO())
        gc.collect()
        return optimizer

    def profile():
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, record_shapes=True) as p:
            work()
        p.export_chrome_trace(os.path.join(os.environ["HERE"], "own.json"))
"""

MEASURED = """
    import findwall
    from attributes import changed, findwalls, look
    from findwall.apply.registry import REGISTRY

    OPTIONS = dict(wait=2, steps=6, verdict=False, out=os.path.join(os.environ["HERE"], "run"))
    work(); profile(); work()

    at_first = look()
    work(); profile(); work()
    by_torch = changed(at_first, look())

    kept, out = [], {}
    before = look()
    with findwall.measure(**OPTIONS) as m:
        kept.append(work())
        until = time.monotonic() + 60
        while not m._session.engine.done and time.monotonic() < until:
            work(steps=200)
        out["traced"] = m._session.engine.done and bool(m._session.engine.record.trace.file)
        during = look()
        out["after_trace"] = sorted(changed(before, during) - by_torch)
        out["says"] = {put.what.partition(":")[0]: put.stays for put in REGISTRY.puts}
    after = look()
    out["after"] = sorted(changed(before, after) - by_torch)
    out["findwalls"] = sorted(findwalls(after))
    out["stays"] = {put.what: put.past_end for put in REGISTRY.puts}
    kept[0].step()  # the schedule has one of ours in it, which does nothing now

    with findwall.measure(**OPTIONS):
        work(torch.optim.RMSprop, steps=60)
    out["again"] = sorted(changed(before, look()) - by_torch)
    out["again findwalls"] = sorted(findwalls(look()))

    before = look()
    REGISTRY.wrap('steps', torch.nn.Module, 'train', lambda original: original)
    torch.Tensor.tolist = lambda tensor: None
    torch.utils.data.DataLoader.__repr__ = lambda loader: ''
    sys.modules['torch.optim.optimizer']._global_optimizer_post_hooks[1] = print
    gc.callbacks.append(lambda *_: None)
    sys.meta_path.append(REGISTRY)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    after = look()
    out["broken"], out["broken findwalls"] = sorted(changed(before, after)), sorted(findwalls(after))
    json.dump(out, sys.stdout)
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The loop in a process of its own: one that pytest has loaded torch in has seen much before."""
    jobs = running.Jobs(tmp_path_factory.mktemp("measured"))
    jobs.write(Path(attributes.__file__).read_text(), "attributes.py")
    jobs.write(textwrap.dedent(WORK) + textwrap.dedent(MEASURED))
    done = jobs.plain_warm("job.py", HERE=str(jobs.folder))
    assert done.code == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_after_measure_every_attribute_is_what_it_was(found: dict[str, Any]) -> None:
    assert found["traced"]
    assert found["after"] == [] and found["findwalls"] == []
    assert list(found["stays"]) == ["os.register_at_fork"] and all(found["stays"].values())
    # What torch does itself when the first of a class is made, as it would without findwall.
    assert found["again"] == ["torch.optim.rmsprop.RMSprop.step"] and found["again findwalls"] == []
    # After the trace, while the job goes on: what is there says why.
    says = found["says"]
    there = [name for name in found["after_trace"] if not name.startswith("threading.")]
    unsaid = [name for name in there if not any(says[what] for what in says if name.startswith(what))]
    assert "torch.optim.adam.Adam.step" in there and unsaid == []
    assert {"gc.callbacks[]", "sys.unraisablehook", "torch.optim.optimizer.Optimizer.__init__"}.isdisjoint(
        there
    )


def test_what_is_left_in_place_is_seen(found: dict[str, Any]) -> None:
    """By hand or through the registry, in torch or in Python: else the other test could not fail."""
    assert found["broken"] == [
        "gc.callbacks[]",
        "handler of SIGUSR1",
        "sys.meta_path[]",
        "torch.Tensor.tolist",
        "torch.nn.modules.module.Module.train",
        "torch.optim.optimizer._global_optimizer_post_hooks[]",
        "torch.utils.data.dataloader.DataLoader.__repr__",
    ]
    assert found["broken findwalls"] == ["sys.meta_path[]", "torch.nn.modules.module.Module.train"]


JOB = """
    import atexit
    import attributes

    before = {}
    attributes.once_executed("torch", lambda: before.update(attributes.look()))
    WORK
    work()
    profile()
    session, until = sys.modules.get("findwall.agent.session"), time.monotonic() + 60
    while session and not session.current().engine.done and time.monotonic() < until:
        work(steps=200)

    @atexit.register
    def compare():
        after, hooks = attributes.look(), sys.modules.get("findwall.apply.registry")
        pythons = [name for name in after if not name.startswith("torch")]
        told = {
            "changed": sorted(name for name in attributes.changed(before, after) if name.startswith("torch")),
            "findwalls": sorted(attributes.findwalls(after)),
            "pythons": {name: attributes.named(after[name]) for name in pythons},
            "stays": {put.what: put.past_end for put in hooks.REGISTRY.puts} if hooks else {},
        }
        with open(os.path.join(os.environ["HERE"], "told.json"), "w") as file:
            json.dump(told, file)
"""


def told(jobs: running.Jobs, run: bool) -> dict[str, Any]:
    """By the job itself, after its last line, in a run or without findwall. A run ends before the job's own
    handlers of the process's end are called."""
    source = textwrap.dedent(JOB).replace("WORK", textwrap.dedent(WORK))
    (jobs.folder / "attributes.py").write_text(Path(attributes.__file__).read_text())
    here = {"HERE": str(jobs.folder)}
    if run:
        done = jobs.run(source, options=("--wait", "2", "--steps", "6"), **here)
        assert "THE VERDICT" in done.stderr and done.measurement().phase == "done", done.stderr
        assert done.measurement().trace is not None and done.measurement().trace.file
    else:
        jobs.write(source)
        done = jobs.plain("job.py", **here)
    assert done.code == 0, done.stderr
    found: dict[str, Any] = json.loads((jobs.folder / "told.json").read_text())
    return found


def test_after_a_run_every_attribute_is_what_it_was(jobs: running.Jobs) -> None:
    plain, run = told(jobs, run=False), told(jobs, run=True)
    assert plain["stays"] == {} and plain["findwalls"] == []
    assert [name for name in run["changed"] if name not in plain["changed"]] == []
    # One finder of ours is left, for modules that the job has not asked for yet.
    assert run["findwalls"] == ["sys.meta_path[]"]
    assert sorted(run["stays"]) == ["atexit", "os.register_at_fork", "sys.meta_path: returns what is hidden"]
    assert all(run["stays"].values())
    pythons = run["pythons"]
    finders = pythons["sys.meta_path[]"].split(", ")
    assert finders[0].startswith("_Returning ")
    pythons["sys.meta_path[]"] = ", ".join(finders[1:])
    assert {name: pythons[name] for name in plain["pythons"]} == plain["pythons"]
