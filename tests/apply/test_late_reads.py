"""Values that the job's own lines read come late, and nobody else's. The device is made up: it says that all
tensors lie on it, and copies them out at once.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from findwall.agent.trial_arm.losses import Losses
from findwall.apply.applying import Effect
from findwall.fixes import all_fixes
from findwall.fixes.host.late_reads import MANY, SCALARS, Copy, LateReads, report
from findwall.fixes.host.read_uses import Uses
from findwall.fixes.host.skipped_waits import COPIES, STREAMS, SkippedWaits

torch = pytest.importorskip("torch")
PATCHED = (*SCALARS, *MANY, "copy_", "to")
BEFORE = {name: (vars(torch.Tensor).get(name), getattr(torch.Tensor, name)) for name in PATCHED}
WAITS = torch.cuda.synchronize, torch.cuda.set_stream


class Snapshot:
    """Whole only once it was waited for."""

    def __init__(self, tensor: Any) -> None:
        self.take(tensor)

    def take(self, tensor: Any) -> None:
        self.buffer, self._copied = torch.full_like(tensor, False).detach(), tensor.detach().clone()

    def wait(self) -> None:
        self.buffer = self._copied


class AllOnIt:
    """Snapshots are not tensors of the job: those lie on the host."""

    def __init__(self) -> None:
        self.copies = 0

    def holds(self, tensor: Any) -> bool:
        return True

    def start(self, tensor: Any, again: Copy | None) -> Copy:
        if isinstance(again, Snapshot):
            again.take(tensor)
            return again
        self.copies += 1
        return Snapshot(tensor)


class Late:
    def __init__(self, effect: Effect, every: int = 1) -> None:
        self.effect, self.device = effect, AllOnIt()
        self.waits = SkippedWaits(torch)
        self.reads = LateReads(torch, effect, self.device, every)
        report(effect, self.reads, self.waits)

    def remove(self) -> None:
        self.reads.remove()
        self.waits.remove()


@pytest.fixture
def late() -> Iterator[Late]:
    found = Late(Effect())
    yield found
    found.remove()
    assert {name: (vars(torch.Tensor).get(name), getattr(torch.Tensor, name)) for name in PATCHED} == BEFORE
    assert (torch.cuda.synchronize, torch.cuda.set_stream) == WAITS


def job(folder: Path, body: str, name: str = "job.py") -> Callable[..., Any]:
    """A function `step(x)` of a file of the job's own."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("import torch\ndef step(x):\n" + textwrap.indent(textwrap.dedent(body), "    "))
    scope: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    found: Callable[..., Any] = scope["step"]
    return found


READS = ("x.item()", "float(x)", "int(x)", "x.tolist()", "x.cpu()", "f'{x:.0f}'", "float(x.cpu())")


@pytest.mark.parametrize("read", READS)
def test_a_value_comes_a_call_late_and_the_first_as_it_is(late: Late, tmp_path: Path, read: str) -> None:
    step = job(tmp_path, f"return {read}\n")
    found = [float(step(torch.tensor(float(number)))) for number in range(1, 6)]
    expected = [1.0, 1.0, 2.0, 3.0, 4.0]
    # What was copied out is read on the host by then: in this made-up device, late as well.
    assert found == ([1.0, 1.0, 1.0, 2.0, 3.0] if read == "float(x.cpu())" else expected)
    assert late.effect.told().took_effect
    assert "4 reads came late, at job.py:3" in late.effect.told().seen or read == "float(x.cpu())"


def test_reads_of_a_step_are_told_apart(late: Late, tmp_path: Path) -> None:
    step = job(tmp_path, "return [one.item() for one in x], x[0].item() + x[1].item()\n")
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight])
    optimizer.step()
    found = []
    for number in (10.0, 20.0, 30.0):
        found.append(step(torch.tensor([number, number + 1, number + 2])))
        optimizer.step()
    assert found == [([10, 11, 12], 21), ([10, 11, 12], 21), ([20, 21, 22], 41)]
    assert late.device.copies == 10  # two for each read, however many steps


def test_only_some_turns_start_a_copy(tmp_path: Path) -> None:
    """Reads of hundreds of values a step would else cost as much as the waits."""
    late = Late(Effect(), every=4)
    try:
        step = job(tmp_path, "return x.item()\n")
        found = [step(torch.tensor(number)) for number in range(12)]
    finally:
        late.remove()
    assert found == [0, 0, 0, 0, 3, 3, 3, 3, 7, 7, 7, 7]


def test_what_is_given_out_stays_as_it_was(late: Late, tmp_path: Path) -> None:
    step = job(tmp_path, "return x.cpu()\n")
    kept = [step(torch.full((3,), float(number))) for number in range(6)]
    assert [one.sum() / 3 for one in kept] == [0.0, 0.0, 1.0, 2.0, 3.0, 4.0]


def test_another_shape_is_waited_for(late: Late, tmp_path: Path) -> None:
    step = job(tmp_path, "return x.tolist()\n")
    assert step(torch.ones(3)) == [1.0] * 3 and step(torch.zeros(2)) == [0.0] * 2
    assert step(torch.arange(65.0)) == list(range(65)) and step(torch.arange(65.0) + 1)[0] == 1.0


def test_libraries_and_findwall_read_what_is_there(
    late: Late, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = job(tmp_path, "return x.item()\n", "site-packages/lib/loss.py")
    assert [library(torch.tensor(number)) for number in range(3)] == [0, 1, 2]
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)  # put back as it was
    losses = Losses(torch)
    for number in range(3):
        torch.tensor(float(number), requires_grad=True).backward()
    assert losses.read() == [0.0, 1.0, 2.0]
    told = late.effect.told()
    assert not told.took_effect and told.trouble.startswith("none of the job's own lines was seen to wait")


@pytest.mark.parametrize(
    "body",
    [
        "while x.item() > 0:\n    x = x - 1\nreturn 0\n",
        "left = x.item()\nwhile left > 0:\n    left -= 1\nreturn left\n",
        "return [0 for _ in range(int(x))]\n",
        "n = int(x)\nreturn torch.zeros(9)[:n]\n",
        "return torch.zeros(x.item())\n",
        "if x.item() > 1:\n    return 1\n",
        "while x.any():\n    x = x - 1\n",
    ],
)
def test_what_decides_is_left_alone(late: Late, tmp_path: Path, body: str) -> None:
    step = job(tmp_path, body)
    for number in (1, 2, 3, 4):
        step(torch.tensor(number))
    told = late.effect.told()
    assert not told.took_effect and "was left alone, as it decides" in told.trouble
    assert late.device.copies == 0


def test_a_test_may_come_late_while_it_does_not_change(late: Late, tmp_path: Path) -> None:
    step = job(tmp_path, "if torch.isnan(x).any() or torch.isinf(x).any():\n    return 'broken'\n")
    assert [step(torch.ones(2)) for _ in range(3)] == [None] * 3
    assert late.effect.told().seen.startswith("a stand-in for the edit: 4 reads came late, at job.py:3")
    assert step(torch.tensor([float("nan")])) is None and step(torch.ones(1)) == "broken"
    told = late.effect.told()
    assert not told.took_effect
    assert told.trouble == "the test at job.py:3 changed, and a late one goes another way"


@pytest.mark.parametrize(
    ("line", "use"),
    [
        ("seen[name] = x.norm().item()", "value"),
        ("print(float(x), y[0])", "value"),
        ("y = z[: x.item()]", "size"),
        ("while x.any(): pass", "size"),
        ("if x: pass", "branch"),
        ("assert not x.isnan().any().item()", "branch"),
        ("pass", "unknown"),
    ],
)
def test_a_line_alone_tells_as_much(line: str, use: str) -> None:
    """As in Python 3.10, which tells no columns."""
    assert Uses(line).of(1, None) == use


def test_a_gradient_is_not_lost(late: Late, tmp_path: Path) -> None:
    step = job(tmp_path, "return x.cpu()\n")
    for number in (1.0, 2.0):
        x = torch.tensor([number], requires_grad=True)
        assert step(x * x).requires_grad


def test_what_is_logged_only_comes_late(late: Late, tmp_path: Path) -> None:
    body = """\
    seen = getattr(step, 'seen', {})
    step.seen = seen
    for name in ('a', 'b'):
        seen[f'norm/{name}'] = x.norm().item()
    total = seen.get('total', 0)
    total += x.sum().item()
    seen['total'] = total
    print(f"loss {x.sum().item():.3f}", x.mean().item())
    """
    step = job(tmp_path, body)
    for _ in range(3):
        step(torch.ones(2))
    assert "left alone" not in late.effect.told().seen
    assert "reads came late, at job.py:6, job.py:8, job.py:10" in late.effect.told().seen


def test_compiled_code_is_no_other(late: Late, tmp_path: Path) -> None:
    step = job(tmp_path, "y = x * 2\nvalue = y.sum().item()\nreturn y + 1, value\n")
    compiled = torch.compile(step, backend="eager")
    for number in (1.0, 2.0, 3.0):
        y, value = compiled(torch.tensor([number]))
        assert y.numpy()[0] == 2 * number + 1 and value in (2 * number, 2 * number - 2)


def test_synchronize_is_skipped_in_the_job_s_own_lines(
    late: Late, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    late.remove()
    with monkeypatch.context() as patched:
        patched.setattr(torch.cuda, "synchronize", lambda *args: made.append(args))
        patched.setattr(torch.cuda, "set_stream", lambda stream: None)
        again = Late(late.effect)
        step = job(tmp_path, "torch.cuda.synchronize(x)\n")
        library = job(tmp_path, "torch.cuda.synchronize(x)\n", "site-packages/lib.py")
        step(0), step(1), library(2)
        assert made == [(2,)] and again.waits.told() == "2 calls of torch.cuda.synchronize skipped"
        job(tmp_path, "torch.cuda.set_stream(x)\n")(None)
        step(3)
        assert made == [(2,), (3,)] and again.waits.why_not == STREAMS
        again.remove()


@pytest.mark.parametrize(
    "body",
    ["torch.empty(2).copy_(x, non_blocking=True)\n", "x.to('cpu', non_blocking=True)\n"],
)
def test_a_wait_for_the_job_s_own_copies_is_made(late: Late, tmp_path: Path, body: str) -> None:
    step = job(tmp_path, body)
    assert late.waits.why_not == ""
    step(torch.ones(2))
    assert late.waits.why_not == COPIES


def test_without_a_gpu_it_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    effect, fix = Effect(), all_fixes()["remove-sync"]
    assert fix.apply is None and fix.stand_in is not None
    fix.stand_in(torch, effect)
    assert effect.told().trouble == "there is no GPU here that the job could wait for"
    assert torch.Tensor.item is BEFORE["item"][1]
