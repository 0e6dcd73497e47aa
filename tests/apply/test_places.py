"""Whose lines led to a call: the job's own, and the library that it called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from findwall.apply import job_lines as places
from findwall.model.applied import Place


def called_in(file: str, module: str, what: Callable[[], Any]) -> Callable[[], Any]:
    """A function of that file which calls another."""
    names: dict[str, Any] = {"__name__": module, "what": what}
    exec(compile("def call():\n    return what()\n", file, "exec"), names)
    found: Callable[[], Any] = names["call"]
    return found


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Place | None]:
    monkeypatch.setattr(places, "is_job", lambda file: file == "train.py")
    monkeypatch.setattr(places, "_is_ours_or_torch", lambda file: "site-packages" not in file)
    return lambda: places.place_now("loader")


def test_the_job_alone_has_no_library(place: Callable[[], Place | None]) -> None:
    found = called_in("train.py", "__main__", called_in("torch/loader.py", "torch.utils", place))()
    assert found is not None and found.library == "" and [one.line for one in found.spots] == [2]


def test_of_several_libraries_it_is_the_one_that_the_job_calls(place: Callable[[], Place | None]) -> None:
    """A trainer hands its loader on to another library: its own settings are what a person changes."""
    inner = called_in("site-packages/accelerate/data_loader.py", "accelerate.data_loader", place)
    outer = called_in("site-packages/transformers/trainer.py", "transformers.trainer", inner)
    found = called_in("train.py", "__main__", outer)()
    assert found is not None and found.library == "transformers"
    again = called_in("site-packages/pytest/run.py", "pytest.run", called_in("train.py", "__main__", inner))()
    assert again is not None and again.library == "accelerate", "what calls the job is none of it"
