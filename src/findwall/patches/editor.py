"""What the patch of a fix is written with: the places that the fix noted in a trial, and the job's files."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from findwall.model.applied import Place, Spot
from findwall.patches import NoPatch
from findwall.patches.call_arguments import Setting, keyword_of
from findwall.patches.edits import FileEdits
from findwall.patches.job_source import Source

Files = dict[str, FileEdits]
# Libraries that run the loop of a job, and what they take their settings in.
TRAINERS = {
    "transformers": ("TrainingArguments",),  # Seq2SeqTrainingArguments as well
    "lightning": (".Trainer",),
    "pytorch_lightning": (".Trainer",),
    "accelerate": (".Accelerator",),
}
Trainers = Mapping[str, Mapping[str, str]]  # what a library's trainer takes for it


class Editor:
    """Edits for one fix. Whatever cannot be done safely raises `NoPatch`, and none of it is made."""

    def __init__(self, places: Sequence[Place], files: Mapping[str, FileEdits] | None = None) -> None:
        self._places = places
        self.remarks: list[str] = []  # sentences
        self.files: Files = {path: one.copy() for path, one in (files or {}).items()}

    def file(self, path: str) -> FileEdits:
        if path not in self.files:
            try:
                data = Path(path).read_bytes()
            except OSError as error:
                raise NoPatch(f"{Path(path).name} cannot be read") from error
            self.files[path] = FileEdits(Source(data))
        return self.files[path]

    def some(self, kind: str) -> list[Place]:
        """The places of this kind, if there are any."""
        return [one for one in self._places if one.kind == kind]

    def places(self, kind: str) -> list[Place]:
        found = self.some(kind)
        if not found:
            raise NoPatch("its lines were not found in the job's own code")
        return found

    def call(self, spot: Spot) -> ast.Call:
        return self.file(spot.file).source.call_at(spot)

    def set_arguments(self, place: Place, trainers: Trainers | None = None, **values: str) -> None:
        """In the call that the job made there; or in the trainer of the library that made it."""
        if place.library:
            self.set_in_trainer(place, trainers or {})
            return
        spot = place.spots[0]
        call, edits = self.call(spot), self.file(spot.file)
        starred = any(one.arg is None for one in call.keywords)
        for name, value in values.items():
            position = place.takes.index(name) if name in place.takes else None
            passed = name in place.given if place.given else starred  # what was not noted may be in it
            edits.set_argument(call, name, Setting(value, position, passed))

    def written(self, place: Place, name: str) -> object:
        """The constant that a call passes as an argument; None if it passes none, or no constant."""
        keyword = None if place.library else keyword_of(self.call(place.spots[0]), name)
        return keyword.value.value if keyword and isinstance(keyword.value, ast.Constant) else None

    def set_in_trainer(self, place: Place, trainers: Trainers) -> None:
        """Where a library runs the loop, its own settings are the place."""
        library, values = place.library, trainers.get(place.library, {})
        if not values:
            raise NoPatch(f"{library} does it, not the job's own code")
        found = list(self._trainer_calls(place))
        if len(found) != 1:
            raise NoPatch(f"Set {settings_text(library, values)}.")
        edits, call = found[0]
        for name, value in values.items():
            # One that is passed in a `**` would come twice: whether it is cannot be seen from here.
            hidden = any(one.arg is None for one in call.keywords)
            edits.set_argument(call, name, Setting(value, passed=hidden))

    def _trainer_calls(self, place: Place) -> Iterator[tuple[FileEdits, ast.Call]]:
        for path in dict.fromkeys(spot.file for spot in place.spots):
            edits = self.file(path)
            for node in ast.walk(edits.source.tree):
                if not isinstance(node, ast.Call):
                    continue
                name = edits.source.resolved(node.func)
                if name.partition(".")[0] == place.library and name.endswith(TRAINERS[place.library]):
                    yield edits, node

    def remark(self, sentence: str) -> None:
        """For who makes the edit: what to know of it, or to do besides."""
        if sentence not in self.remarks:
            self.remarks.append(sentence)

    def at_start(self, place: Place, line: str) -> None:
        """Behind the imports of the script; `{torch}` is torch as it is called there."""
        edits = self.file(place.spots[-1].file)
        edits.at_start(line.format(torch=edits.module("torch")))

    def remove_call(self, place: Place) -> None:
        """A call that is a statement."""
        if place.library:
            raise NoPatch(f"{place.library} calls it, not the job's own code")
        edits, call = self.file(place.spots[0].file), self.call(place.spots[0])
        statement = edits.source.statement(call)
        if not isinstance(statement, ast.Expr) or statement.value is not call:
            raise NoPatch(f"line {statement.lineno} does more than this call")
        edits.remove(statement)


def settings_text(library: str, values: Mapping[str, str]) -> str:
    listed = ", ".join(f"{name}={value}" for name, value in values.items())
    return f"`{TRAINERS[library][0].lstrip('.')}({listed})`"
