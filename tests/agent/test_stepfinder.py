"""Where steps end: optimizers, several of them, forward calls, graphs, loaders."""

from __future__ import annotations

from types import SimpleNamespace

from findwall.agent.options import Options
from findwall.agent.step_ends.nosteps import NO_STEPS, no_steps
from findwall.agent.step_ends.stepfinder import PATIENCE, PATIENCE_IN_TRAINING, Mark, StepEnd, StepFinder


def ends(finder: StepFinder, marks: str, source: StepEnd = StepEnd.OPTIMIZER) -> str:
    """One character a mark; '|' where it ended a step, '.' where it did not."""
    return "".join("|" if finder.mark(source, ord(mark)) else "." for mark in marks)


def test_one_optimizer_ends_a_step_each_time():
    assert ends(StepFinder(), "aaaa") == "||||"


def test_alternating_optimizers_make_one_step():
    assert ends(StepFinder(), "dgdgdgdg") == "||.|.|.|"


def test_the_rarer_optimizer_ends_the_step():
    finder = StepFinder()
    ends(finder, "dddddg")
    assert ends(finder, "dddddgdddddg") == ".....|.....|"


def test_an_optimizer_for_each_parameter_ends_with_the_last():
    finder = StepFinder()
    names = "".join(chr(1000 + i) for i in range(300))
    ends(finder, names)
    assert ends(finder, names) == "." * 299 + "|"


def test_an_optimizer_that_never_comes_back_is_forgotten():
    finder = StepFinder()
    ends(finder, "aaaaab")
    assert ends(finder, "a" * 200).endswith("|" * 50)


class Optimizer:
    """As much of one as its likeness takes."""

    def __init__(self, *shape: int) -> None:
        self.param_groups = [{"params": [SimpleNamespace(shape=shape)]}]


def stepped(finder: StepFinder, optimizer: Optimizer, times: int = 1) -> str:
    ended = [finder.mark(StepEnd.OPTIMIZER, id(optimizer), seen=Mark(optimizer)) for _ in range(times)]
    return "".join("|" if one else "." for one in ended)


def test_an_optimizer_for_each_problem_ends_the_same_steps():
    finder = StepFinder()
    assert [stepped(finder, Optimizer(4, 5), times=8) for _ in range(20)] == ["|" * 8] * 20
    assert not finder.take_restart()[0]


def test_two_alike_in_one_step_are_two():
    finder, both = StepFinder(), (Optimizer(4), Optimizer(4))
    assert "".join(stepped(finder, one) for _ in range(4) for one in both) == "||.|.|.|"
    assert finder.take_restart()[0]


def test_an_optimizer_of_other_tensors_ends_other_steps():
    finder = StepFinder()
    stepped(finder, Optimizer(4), times=3)
    stepped(finder, Optimizer(5))
    assert finder.take_restart()[0]


def test_one_inside_a_step_may_be_replaced():
    finder, outer = StepFinder(), Optimizer(9)
    found = [stepped(finder, Optimizer(4), times=3) + stepped(finder, outer) for _ in range(5)]
    assert found == ["||||", *["...|"] * 4]


def test_a_change_of_what_ends_a_step_is_told_once():
    finder = StepFinder()
    ends(finder, "aa")
    assert not finder.take_restart()[0]
    ends(finder, "b")
    assert finder.take_restart()[0]
    assert not finder.take_restart()[0]


def test_forward_calls_count_only_where_no_optimizer_does():
    finder = StepFinder()
    patience = PATIENCE[StepEnd.FORWARD]
    assert ends(finder, "m" * (patience + 3), StepEnd.FORWARD) == "." * patience + "|||"
    assert finder.source is StepEnd.FORWARD
    assert ends(finder, "o") == "|"
    assert finder.source is StepEnd.OPTIMIZER and finder.take_restart() == (True, True)
    assert ends(finder, "mm", StepEnd.FORWARD) == ".."


def test_where_training_is_expected_forward_calls_need_patience():
    finder = StepFinder()
    finder.training_expected = True
    assert "|" not in ends(finder, "m" * PATIENCE_IN_TRAINING, StepEnd.FORWARD)
    assert ends(finder, "m", StepEnd.FORWARD) == "|"


def test_a_captured_optimizer_makes_the_graphs_replay_the_step():
    finder = StepFinder()
    ends(finder, "ooo")
    finder.optimizer_captured = True
    assert ends(finder, "ggg", StepEnd.REPLAY) == "|||"
    assert finder.source is StepEnd.REPLAY


def test_replays_inside_a_training_step_are_no_steps():
    finder = StepFinder()
    ends(finder, "o")
    assert ends(finder, "g" * 50, StepEnd.REPLAY) == "." * 50


def test_slow_calls_are_believed_sooner():
    finder = StepFinder()
    ended = [finder.mark(StepEnd.FORWARD, 1, now * 4_000_000_000) for now in range(4)]
    assert ended == [False, False, True, True]


def test_batches_are_steps_when_nothing_else_is():
    finder = StepFinder()
    assert ends(finder, "b" * 20, StepEnd.LOADER).endswith("||||")


def test_an_explicit_step_wins_over_all():
    finder = StepFinder()
    ends(finder, "oo")
    assert finder.mark(StepEnd.EXPLICIT)
    assert ends(finder, "oo") == ".."


def test_it_tells_what_was_seen_and_how_much_more_it_takes():
    finder = StepFinder()
    assert finder.so_far() == []
    for _ in range(4):
        assert not finder.mark(StepEnd.FORWARD, 1)
    ((source, seen, more),) = finder.so_far()
    assert (source, seen) == (StepEnd.FORWARD, 4)
    assert [finder.mark(StepEnd.FORWARD, 1) for _ in range(more)] == [False] * (more - 1) + [True]
    assert finder.so_far() == []
    expecting = StepFinder()
    expecting.training_expected = True
    expecting.mark(StepEnd.LOADER)
    assert expecting.so_far() == [(StepEnd.LOADER, 1, 256)]


def test_a_job_without_steps_is_told_in_those_words():
    said = no_steps([(StepEnd.FORWARD, 4, 3), (StepEnd.LOADER, 1, 16)], training_expected=False)
    assert "Seen: 4 calls of a module, 3 more needed; 1 batch from a data loader, 16 more needed." in said
    assert "no_grad" not in said
    assert "torch.no_grad() says that none comes" in no_steps([(StepEnd.FORWARD, 4, 253)], True)
    assert no_steps([], True) == NO_STEPS
    marked = no_steps([(StepEnd.FORWARD, 4, 3)], False, Options(caller="findwall.measure"))
    assert marked.endswith("call m.step() at the end of each step")
    assert no_steps([], True, Options(caller="FindwallCallback")).endswith("with FindwallCallback")
