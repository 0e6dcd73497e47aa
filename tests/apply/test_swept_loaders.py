"""The loader that feeds a job's steps is told from others, and alone gets batches of another size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler

from findwall.apply.registry import REGISTRY
from findwall.apply.swept_loaders import BY, NO_BATCHES, OWN_SAMPLER, SweptLoaders
from findwall.model.arms import FedLoader, Varied


class Rows(Dataset[Any]):
    def __len__(self) -> int:
        return 50

    def __getitem__(self, at: int) -> Any:
        return torch.ones(3) * at


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([torch.ones(3)] * 50)


class Pairs(BatchSampler):
    """A sampler of the job's own."""


@pytest.fixture
def watched() -> Iterator[Callable[..., SweptLoaders]]:
    """Put in place as in a process of a sweep, and taken out."""
    yield lambda **varied: SweptLoaders(torch, Varied(**varied), lambda: None)
    for put in REGISTRY.puts:
        if put.by == BY:
            put.undo()


class Job:
    """Trains on one loader and evaluates with another after each pass; notes the sizes that both give."""

    def __init__(self, train: Callable[[], Any], evaluate: Callable[[], Any], no_grad: bool = True) -> None:
        self.model = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.train, self.evaluate, self.no_grad = train, evaluate, no_grad
        self.trained: list[int] = []
        self.evaluated: list[int] = []

    def run(self, passes: int = 2, every: int = 1) -> Job:
        for _ in range(passes):
            for number, x in enumerate(self.train()):
                self.trained.append(len(x))
                self.model(x).sum().backward()
                if number % every == every - 1:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
            for x in self.evaluate():
                self.evaluated.append(len(x))
                with torch.set_grad_enabled(not self.no_grad):
                    self.model(x)
        return self


def trains(train: Any, evaluate: Any) -> Job:
    return Job(lambda: train, lambda: evaluate)


def only(fed: list[FedLoader]) -> FedLoader:
    (found,) = fed
    return found


def twice(
    watched: Callable[..., SweptLoaders], size: int, play: Callable[[], Job]
) -> tuple[FedLoader, FedLoader, Job]:
    """The job as it is, and with batches of another size, from the same lines as in two processes."""
    told = [FedLoader("", None, None, 0, 0)]
    for given in (None, size):
        seen = watched(size=given, loader=told[-1].loader)
        job = play()
        told.append(only(seen.fed))
    return told[1], told[2], job


def test_the_training_loader_is_changed_and_evaluation_s_is_not(
    watched: Callable[..., SweptLoaders],
) -> None:
    lengths = []

    def play() -> Job:
        train, evaluate = DataLoader(Rows(), 8, shuffle=True), DataLoader(Rows(), 8)
        lengths.append((len(train), train.batch_size, len(evaluate)))  # before anybody goes through it
        return trains(train, evaluate).run()

    before, after, job = twice(watched, 16, play)
    assert before.size == 8 and before.samples == 50 and before.steps >= 12
    assert lengths == [(7, 8, 7), (3, 16, 7)] and after.size == 16
    assert job.trained == [16] * 6 and job.evaluated == [8, 8, 8, 8, 8, 8, 2] * 2


def test_the_same_helper_may_make_both(watched: Callable[..., SweptLoaders]) -> None:
    def made(is_training: bool) -> Any:
        return DataLoader(Rows(), 8, shuffle=is_training)

    def play() -> Job:  # with new loaders in each pass
        return Job(lambda: made(True), lambda: made(False), no_grad=False).run()

    _, after, job = twice(watched, 4, play)
    assert set(job.trained) == {4} and 8 in job.evaluated and after.size == 4


def test_no_batch_of_a_loader_that_trains_is_incomplete(watched: Callable[..., SweptLoaders]) -> None:
    seen = watched()
    job = trains(DataLoader(Rows(), 8), DataLoader(Rows(), 50)).run(passes=3)
    assert job.trained == [*[8] * 6, 2, *[8] * 12]  # it was known after the first step only
    assert only(seen.fed).size == 8
    seen = watched()
    job = trains(DataLoader(Rows(), 64), DataLoader(Rows(), 50)).run(passes=2)
    assert job.trained == [50, 50] and only(seen.fed).samples == 50  # not a pass without any


def test_gradients_that_accumulate_and_a_stream(watched: Callable[..., SweptLoaders]) -> None:
    def play() -> Job:
        return Job(lambda: DataLoader(Stream(), 5), list).run(every=2)

    before, _, job = twice(watched, 12, play)
    assert before.samples is None and before.size == 5 and before.batches == 20 and before.steps == 10
    assert job.trained == [12] * 8


def test_two_loaders_that_feed_a_step_are_both_told(watched: Callable[..., SweptLoaders]) -> None:
    seen = watched()
    labelled, others = DataLoader(Rows(), 5), DataLoader(Rows(), 10)
    Job(lambda: (torch.cat(two) for two in zip(labelled, others, strict=False)), list).run()
    assert [one.size for one in seen.fed] == [5, 10]


def test_a_job_without_an_optimizer_has_the_loader_it_goes_through(
    watched: Callable[..., SweptLoaders],
) -> None:
    seen = watched()
    for _ in DataLoader(Rows(), 5):
        pass
    assert only(seen.fed).size == 5 and only(seen.fed).steps == 0


def test_a_batch_sampler_of_torch_s_own_is_changed(watched: Callable[..., SweptLoaders]) -> None:
    def play() -> Job:
        batches = BatchSampler(RandomSampler(Rows()), 8, False)
        return trains(DataLoader(Rows(), batch_sampler=batches), []).run()

    before, _, job = twice(watched, 10, play)
    assert before.size == 8 and not before.why_fixed and job.trained == [10] * 10


def test_batches_that_others_make_stay_as_they_are(watched: Callable[..., SweptLoaders]) -> None:
    seen = watched()
    Job(lambda: DataLoader(Rows(), batch_sampler=Pairs(RandomSampler(Rows()), 8, True)), list).run()
    assert only(seen.fed).why_fixed == OWN_SAMPLER and only(seen.fed).made_by == "Pairs"
    seen = watched()
    Job(lambda: DataLoader(Rows(), batch_size=None), list).run()
    assert only(seen.fed).why_fixed == NO_BATCHES


def test_a_look_that_breaks_breaks_no_job(
    watched: Callable[..., SweptLoaders], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watched()
    monkeypatch.setattr("findwall.apply.swept_loaders.place_now", lambda *_: 1 / 0)
    assert Job(lambda: DataLoader(Rows(), 25), list).run().trained == [25] * 4
    assert seen.fed == []
