"""findwall in a notebook: a Diagnosis that shows itself."""

from __future__ import annotations

from typing import Any

import msgspec

from findwall.model.diagnosis import Diagnosis

# Remedies name the command's options; who calls Python has arguments of the same names.
ARGUMENTS = {"--step-ms": "step_ms=", "--ceilings": "ceilings="}


class ShownDiagnosis(Diagnosis):
    """A Diagnosis as a notebook shows it: HTML where that is understood, else the terminal's view."""

    def _repr_html_(self) -> str:
        from findwall import __version__
        from findwall.report.html import to_html
        from findwall.report.page import framed

        seen = _in_python(self)
        return framed(seen, to_html(seen), __version__)

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(str(self))

    def __str__(self) -> str:
        from findwall.report.terminal import to_text

        return to_text(_in_python(self))


def shown(diagnosis: Diagnosis) -> ShownDiagnosis:
    """The same document, able to show itself."""
    fields = {name: getattr(diagnosis, name) for name in diagnosis.__struct_fields__}
    return ShownDiagnosis(**fields)


def _in_python(diagnosis: Diagnosis) -> Diagnosis:
    wall = msgspec.structs.replace(diagnosis.wall, sentence=_arguments(diagnosis.wall.sentence))
    return msgspec.structs.replace(diagnosis, wall=wall, notes=[_arguments(note) for note in diagnosis.notes])


def _arguments(text: str) -> str:
    for option, argument in ARGUMENTS.items():
        text = text.replace(option, argument)
    return text
