"""A loop measured from inside the script or notebook that runs it, where no `findwall run` can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from findwall.agent.ending.telling import Speak
from findwall.agent.options import LOOP, Options, disabled
from findwall.agent.session import Session, current


class measure:  # noqa: N801 - reads as a verb: `with findwall.measure() as m`
    """Measure a loop in a notebook or script: `with findwall.measure() as m: … m.step()`.

    Takes the options of `findwall run`. Inside a job that `findwall run` started it only passes the steps on.
    """

    _speak: Speak | None = None

    def __init__(self, name: str = "notebook", **options: Any) -> None:
        self._name = name
        self._options = Options(**{"caller": LOOP, **options})
        self._session: Session | None = None
        self._is_guest = False

    def __enter__(self) -> measure:
        self._session = current()
        self._is_guest = self._session is not None
        if self._session is None and not disabled():
            self._session = Session.begin(self._name, [self._name], self._options, speak=self._speak)
        return self

    def step(self) -> None:
        """The end of one step."""
        if self._session is not None:
            self._session.step()

    @property
    def folder(self) -> Path | None:
        """The run folder, once there is one."""
        return None if self._session is None else self._session.folder

    @property
    def speaks(self) -> bool:
        """Whether this is the process of its job that tells the verdict."""
        return self._session is not None and self._session.rank.speaks

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._session is not None and not self._is_guest:
            self._session.close("" if kind is None else kind.__name__, error)
