"""Steps that pass are counted and timed, and nothing else is done."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from findwall.agent.step_ends.optimizerhooks import pass_step_on, watched_step
from findwall.agent.step_ends.step_gate import Gate, Gauge, Watch
from findwall.agent.step_ends.stepfinder import StepEnd


class Optimizer:
    """Its step() calls that of its base class, as optimizers of users do."""

    def __init__(self) -> None:
        self.base = watched_step(Relay.only, lambda optimizer: optimizer.count(1))
        self.steps = 0

    def count(self, number: int) -> int:
        self.steps += number
        return self.steps


class Relay:
    only: Relay

    def __init__(self) -> None:
        self.sink = self
        self.gate = Gate()
        self.told: list[object] = []

    def optimizer_began(self, optimizer: object) -> None:
        self.told.append("began")

    def optimizer_ended(self, optimizer: object, failed: bool) -> None:
        self.told.append("failed" if failed else "ended")


@pytest.fixture
def relay():
    Relay.only = Relay()
    return Relay.only


def test_so_many_steps_pass_and_the_next_is_told(relay):
    optimizer = Optimizer()
    step = watched_step(relay, lambda optimizer: optimizer.base(optimizer))
    relay.gate.shut(StepEnd.OPTIMIZER, id(optimizer), 3)
    for _ in range(3):
        step(optimizer)
    ends, spent = relay.gate.take()
    assert len(ends) == 3 and ends == sorted(ends) and spent > 0 and not relay.told
    step(optimizer)
    assert relay.told[0] == "began" and "ended" in relay.told
    assert optimizer.steps == 4 and relay.gate.take() == ([], 0)


def test_other_marks_do_not_count(relay):
    relay.gate.shut(StepEnd.LOADER, 0, 2, known={0, 1})
    relay.gate.passed(StepEnd.REGION, 0)
    relay.gate.passed(StepEnd.LOADER, 1)
    assert relay.gate.left == 2
    relay.gate.passed(StepEnd.LOADER, 0)
    assert relay.gate.left == 1


def test_a_step_that_fails_is_none_and_raises(relay):
    def fail(optimizer: object) -> None:
        raise ValueError("no")

    step = watched_step(relay, fail)
    relay.gate.shut(StepEnd.OPTIMIZER, id(relay), 2)
    with pytest.raises(ValueError):
        step(relay)
    assert relay.gate.left == 2
    relay.gate.left = 0
    with pytest.raises(ValueError):
        step(relay)
    assert relay.told == ["began", "failed"]


def test_a_compiler_sees_the_original_alone(relay):
    def plain(optimizer: object) -> int:
        return 7

    spot = SimpleNamespace(original=plain, call=watched_step(relay, plain))
    step = pass_step_on(lambda: True, spot)
    assert step(relay) == 7 and not relay.told


def test_waiting_for_data_is_noted():
    gate, gauge = Gate(), Gauge()
    assert not gate.is_timing
    gate.shut(StepEnd.EXPLICIT, 0, 5, gauge)
    gate.waited_for_data(40)
    assert (gauge.loader_ns, gauge.batches) == (40, 1)
    assert gate.is_timing


def test_shut_for_good_nothing_opens_it():
    gate = Gate()
    gate.shut_for_good()
    gate.waited_for_data(40)
    gate.passed(StepEnd.EXPLICIT, 0)
    assert gate.left and not gate.ends and not gate.is_timing


def test_where_the_marks_stop_coming_another_opens_the_gate(monkeypatch):
    now = 0
    monkeypatch.setattr("findwall.agent.step_ends.step_gate.perf_counter_ns", lambda: now)
    gate = Gate()
    gate.shut(StepEnd.OPTIMIZER, 7, 3)
    gate.passed(StepEnd.REPLAY, 1)
    assert gate.left == 3
    now = 2_000_000_000
    gate.passed(StepEnd.REPLAY, 1)
    assert gate.left == 0


def test_a_capture_opens_it_unless_nothing_is_measured_any_more():
    gate = Gate()
    gate.shut(StepEnd.OPTIMIZER, 7, 3)
    gate.open()
    assert gate.left == 0
    gate.shut_for_good()
    gate.open()
    assert gate.left


def test_a_gate_that_opens_inside_a_step_is_open_after_it(relay):
    """Lightning's closure holds the whole step, and with it a teacher's eval()."""
    step = watched_step(relay, lambda optimizer: relay.gate.open())
    relay.gate.shut(StepEnd.OPTIMIZER, id(relay), 5, Gauge())
    step(relay)
    assert relay.gate.left == 0 and len(relay.gate.ends) == 1
    step(relay)
    assert relay.told == ["began", "ended"]


def test_steps_that_became_slow_are_not_waited_for(monkeypatch):
    now = 0
    monkeypatch.setattr("findwall.agent.step_ends.step_gate.perf_counter_ns", lambda: now)
    gate = Gate()
    gate.shut(StepEnd.OPTIMIZER, 7, 63)
    gate.passed(StepEnd.OPTIMIZER, 7)
    assert gate.left == 62
    now = 2_000_000_000
    gate.passed(StepEnd.OPTIMIZER, 7)
    assert gate.left == 0 and len(gate.ends) == 2


def test_what_is_new_does_not_pass(relay):
    """An optimizer in another's place, or the first of all after steps of a poorer kind."""
    step = watched_step(relay, lambda optimizer: None)
    relay.gate.shut(StepEnd.OPTIMIZER, 7, 5, known={7, 8})
    assert not relay.gate.passed(StepEnd.OPTIMIZER, 8) and relay.gate.left == 5
    step(relay)
    assert relay.told == ["ended"] and relay.gate.left == 0 and not relay.gate.ends
    relay.gate.shut(StepEnd.FORWARD, 7, 5, known={7})
    assert not relay.gate.passed(StepEnd.LOADER, 0) and relay.gate.passed(StepEnd.OPTIMIZER, 9)


def test_an_optimizer_inside_one_that_passes_is_no_step_of_its_own(relay):
    """Even if the gate opens between the two."""
    inner = watched_step(relay, lambda optimizer: None)

    def opens_and_calls(optimizer: object) -> None:
        relay.gate.open()
        inner(optimizer)

    relay.gate.shut(StepEnd.OPTIMIZER, id(relay), 5, known={id(relay)})
    watched_step(relay, opens_and_calls)(relay)
    assert len(relay.gate.ends) == 1 and not relay.told


def test_a_pause_inside_a_pass_is_not_doubled(monkeypatch):
    clock = iter((0, 10, 700, 20, 4_000_020))
    monkeypatch.setattr("findwall.agent.step_ends.step_gate.perf_counter_ns", lambda: next(clock))
    gate = Gate()
    gate.shut(StepEnd.OPTIMIZER, 7, 3)
    gate.passed(StepEnd.OPTIMIZER, 7)
    assert gate.spent_ns == 2 * 690
    gate.passed(StepEnd.OPTIMIZER, 7)
    assert gate.spent_ns == 2 * 690 + 4_000_000


def test_at_rest_only_a_better_mark_is_told():
    gate = Gate()
    gate.shut_until_better(StepEnd.FORWARD)
    for source in (StepEnd.FORWARD, StepEnd.LOADER):
        assert not gate.passed(source, 1)
    assert not gate.ends and gate.left
    gate.open()
    assert gate.left
    assert gate.passed(StepEnd.OPTIMIZER, 5) and not gate.left


def test_who_watches_is_told_of_blocks_and_when_the_time_is_up(monkeypatch):
    clock = iter(range(0, 10**9, 10))
    monkeypatch.setattr("findwall.agent.step_ends.step_gate.perf_counter_ns", lambda: next(clock))
    blocks, slow, over = [], [], []
    watch = Watch(
        StepEnd.OPTIMIZER,
        7,
        10.0,
        lambda *step: slow.append(step),
        4,
        blocks.append,
        150,
        lambda: over.append(1),
        lambda: False,
    )
    for _ in range(9):
        watch.passed(StepEnd.OPTIMIZER, 7)
    assert (blocks, slow, over) == ([10.0, 10.0], [], [])
    for _ in range(9):  # what ended steps comes no more, and something else does
        watch.passed(StepEnd.FORWARD, 1)
    assert (watch.count, over) == (9, [1])


def test_steps_beside_which_findwall_works_are_counted_and_not_timed(monkeypatch):
    now, at_work = [0], [True]
    monkeypatch.setattr("findwall.agent.step_ends.step_gate.perf_counter_ns", lambda: now[0])
    ended, step = [], 20_000_000
    watch = Watch(
        StepEnd.OPTIMIZER,
        7,
        step,
        lambda *one: ended.append(one),
        4,
        ended.append,
        1 << 62,
        list,
        lambda: at_work[0],
    )

    def steps(count, ns):
        for _ in range(count):
            now[0] += ns
            watch.passed(StepEnd.OPTIMIZER, 7)

    steps(10, 3 * step)  # slowed down by what works beside it
    assert (watch.count, watch.timed, watch.ns, watch.slow_ns) == (10, 0, 0, [])
    assert len(ended) == 10  # an evaluation inside is over with its step, all the same
    at_work[0] = False
    steps(6, step)  # it is asked now and then
    before = watch.timed
    steps(4, step)
    assert before > 0 and watch.timed == before + 4 and watch.ns == watch.timed * step
    steps(1, 9 * step)
    assert watch.slow_step == [watch.count - 1] and watch.slow_ns == [9 * step]


def test_what_was_shut_for_good_can_be_opened_again():
    gate = Gate()
    gate.shut_for_good()
    gate.open_again()
    assert not gate.left
    gate.shut(StepEnd.OPTIMIZER, 1, 2)
    assert gate.left == 2
