"""A Diagnosis and its series without what is the job's own, for a page that is shared.

Paths, scripts, arguments, lines, modules, ranges, threads and hosts go; kernels, ATen ops, shapes and all
numbers stay. Fields that hold such a name get another one, the same wherever it comes up (`module 2`). In
sentences nothing is searched for: a word stays if it is findwall's own, or the name of a kernel or an op that
anybody may see. All else goes, whatever it is.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import msgspec

from findwall.model.diagnosis import Diagnosis
from findwall.model.series import Series, StepTimeline, Track
from findwall.report.names import clean, kernel_name
from findwall.report.vocabulary import LETTERS, TOKEN, Vocabulary, own_vocabulary

MASK = "[redacted]"
# Libraries whose ops and optimizers anybody may see.
NAMESPACES = (
    "aten|prims|prim|c10|c10d|c10d_functional|_c10d_functional|nccl|gloo|torch|torchvision|torchaudio|inductor"
    "|triton|quantized|_quantized|fbgemm|autograd|profiler|xformers|flash_attn|bitsandbytes|mkldnn|onednn|cudnn"
)
_OP = re.compile(rf"(?:(?:{NAMESPACES})::|torch(?:\.\w+)+::|(?:gloo|nccl|mpi|ucc):)[\w.:]+")
_NODE = re.compile(r"(?:autograd::engine::evaluate_function: )?(?:\w+Backward\d+|torch::autograd::\w+)")
_PLACES = "(?:Pageable|Pinned|Device|Array|Host|Managed|Unknown)"
_CALL = re.compile(
    r"(?:cuda|cu|hip)(?:Launch|Mem|Malloc|Free|Stream|Event|Device|Ctx|Module|Func|Graph|Host|Get|Set|Occupancy"
    r"|Kernel|Init|Driver|Peek|Library|Pointer|Thread|Ext|User)\w*"
    rf"|Memcpy [HDP]to[HDP](?: \({_PLACES} -> {_PLACES}\))?|Memset(?: \({_PLACES}\))?"
)
_MADE_BY_TORCH = re.compile(
    r"ProfilerStep#\d+|PyTorch Profiler \(\d+\)|TorchDynamo Cache Lookup"
    r"|Torch-Compiled Region: [\d/]+"
    r"|enumerate\(DataLoader\)#_(?:Single|Multi)Process(?:ing)?DataLoaderIter\.__next__"
    r"|CompiledFunction(?:Backward)?|triton_(?:poi|red|per|tem|for)_fused_\w+"
    r"|Optimizer\.(?:step|zero_grad)#(?:SGD|Adam|AdamW|Adamax|Adagrad|RMSprop|LBFGS|NAdam|RAdam|Adafactor|Muon)"
    r"\.(?:step|zero_grad)|DistributedDataParallel\.forward|Command Buffer Full|Activity Buffer Request"
    r"|detach|detach_|Lazy Function Loading|Runtime Triggered Module Loading"
)
_OWN_TRACK = re.compile(
    r"device idle|thread \d+(?: \(python[\d.]*\))?|(?:GPU \d+, )?(?:the cores|stream -?\d+)"
)
# An op, not a kernel: those have arguments, or no namespace.
_LIKE_OP = re.compile(r"\w+::[\w.:]+")
# A path, a dotted or joined name, a line of a file: its parts may be plain words, together they are a name.
_PLACE = re.compile(r"[/\\@]|\w\.[^\W\d]|::|[^\W\d]_|_[^\W\d]|:\d")
# After a line of a file: the function it is in.
_FUNCTION = re.compile(r"((?:\bline \d+|\[redacted\])(?: in | \())[^\W\d][\w.]*(?=[:),.;]|$)")
_DEVICE = re.compile(
    r"\s*(?:NVIDIA|AMD|Intel|Tesla|GeForce|Quadro|Apple|ARM|Ampere|AWS|Neoverse|Google|IBM)\b[\w \-()./@+]*"
)
_VERSION = re.compile(r"\d+(?:\.\d+)*(?:(?:a|b|rc|\.post|\.dev)\d+)*(?:\+(?:cpu|cu\d+|rocm[\d.]+))?")
_RATE = re.compile(r"/(?:s|step)$")
KEPT_AS_THEY_ARE = frozenset({"schema", "started"})


def redacted(diagnosis: Diagnosis, series: Series | None) -> tuple[Diagnosis, Series]:
    """Both, fit to be shown to anybody."""
    series = series or Series()
    diagnosis = msgspec.structs.replace(diagnosis, watch=None)  # lines, functions and the job's own command
    pen = _Pen(diagnosis, series, own_vocabulary())
    return pen.fields(diagnosis), _series(series, pen)


class _Pen:
    """Gives names their other names, and takes words out of sentences."""

    def __init__(self, diagnosis: Diagnosis, series: Series, own: Vocabulary) -> None:
        self._own = own
        self._whole = self._renamed = _any_of(())
        self._device: frozenset[str] = frozenset()
        self._bare: set[str] = set()
        self._public: frozenset[str] = frozenset()
        self._names: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        step = series.timeline
        names, on_host = _names_of(step) if step is not None else ([], set())
        evidence = list(chain.from_iterable(row.evidence for row in diagnosis.budget))
        kernels = [row.name for row in diagnosis.kernels] + [item.kernel or "" for item in evidence]
        kernels += [name for name in names if name not in on_host]
        ops = [row.op or "" for row in diagnosis.kernels] + [item.op or "" for item in evidence]
        ops += [name for name in names if name in on_host]
        seen = [name for name in dict.fromkeys(kernels) if name and not _is_foreign(name)]
        public = [name for name in dict.fromkeys([*kernels, *ops]) if name and is_public(name)]
        self._public = _forms(seen) | _forms(public)
        self._bare = set(chain.from_iterable(map(_bare_forms, public)))
        self._device = frozenset(TOKEN.findall(self.device(diagnosis.machine.device or "")))
        self._private(diagnosis, series, [name for name in ops if name and not is_public(name)])
        self._whole = _any_of(self._public, _MADE_BY_TORCH.pattern)

    def _private(self, diagnosis: Diagnosis, series: Series, names: Iterable[str]) -> None:
        """Give every name that is known to be the job's own another one, so that sentences can use it."""
        for path in diagnosis.source.paths:
            self.renamed(path, "input", "-")
        for module in diagnosis.modules:
            self.renamed(module.module, "module")
        for item in chain.from_iterable(row.evidence for row in diagnosis.budget):
            if item.line:
                self.renamed(item.line, "line")
        for name in names:
            self.renamed(name, "range")
        for argument in series.command:
            self.renamed(argument, "argument")
        # A plain word of findwall's own stays in sentences, where nobody can tell whose it is; numbers too.
        told = {name for name in self._names if not self._is_plain(name)}
        self._renamed = _any_of(told)

    def _is_plain(self, name: str) -> bool:
        return not LETTERS.search(name) or (LETTERS.fullmatch(name) is not None and self._own.knows(name))

    def renamed(self, name: str, kind: str, between: str = " ") -> str:
        """The same name for the same thing."""
        if name not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[name] = f"{kind}{between}{self._counts[kind]}"
        return self._names[name]

    # Values by what they are

    def fields(self, value: Any, name: str = "") -> Any:
        """A document, field by field; a field that is not known here holds text."""
        if isinstance(value, msgspec.Struct):
            told = {field: self.fields(getattr(value, field), field) for field in value.__struct_fields__}
            return msgspec.structs.replace(value, **told)
        if isinstance(value, str):
            return self.field(name, value)
        if isinstance(value, list):
            return [self.fields(one, name) for one in value]
        if not isinstance(value, dict):
            return value
        found: dict[str, Any] = {}
        for key, one in value.items():
            other = self.key(key) if isinstance(key, str) else key
            while other in found:
                other += "'"
            found[other] = self.fields(one, key)
        return found

    def key(self, value: str) -> str:
        """What a figure is called: words of findwall's own, joined."""
        is_own = value.isidentifier() and all(map(self._own.knows, LETTERS.findall(value)))
        return value if is_own else self.text(value)

    def field(self, name: str, value: str) -> str:
        if name in KEPT_AS_THEY_ARE or not value:
            return value
        if name == "paths":
            return self.renamed(value, "input", "-")
        if name == "module":
            return self.renamed(value, "module")
        if name == "line":
            return self.renamed(value, "line")
        if name in ("op", "kernel", "name"):
            return self.name(value, on_host=name == "op")
        return self.device(value) if name == "device" else self.text(value)

    def name(self, value: str, on_host: bool) -> str:
        """An op, a range or a call of the host; or a kernel, or a gap."""
        is_kept = is_public(value) if on_host else is_public(value) or not _is_foreign(value)
        return value if is_kept else self.renamed(value, "range")

    def device(self, value: str) -> str:
        return value if _DEVICE.fullmatch(value) else self.text(value)

    def version(self, value: str) -> str:
        found = _VERSION.match(value)
        return found[0] if found else MASK

    # Sentences

    def text(self, value: str) -> str:
        """A sentence: known names in their other form, public ones and findwall's own words as they are."""
        value = clean(value)
        pieces: list[str] = []
        for at, piece in enumerate(self._whole.split(value)):
            pieces.append(piece if at % 2 else self._without_private(piece))
        return _FUNCTION.sub(rf"\1{MASK}", "".join(pieces))

    def _without_private(self, text: str) -> str:
        pieces: list[str] = []
        for at, piece in enumerate(self._renamed.split(text)):
            pieces.append(self._names[piece] if at % 2 else TOKEN.sub(self._token, piece))
        return re.sub(rf"{re.escape(MASK)}(?:[ ,]+{re.escape(MASK)})+", MASK, "".join(pieces))

    def _token(self, found: re.Match[str]) -> str:
        whole = found[0]
        token = whole.rstrip(".:!?")
        return whole if self._may_stay(token) else MASK + whole[len(token) :]

    def _may_stay(self, token: str) -> bool:
        token = _RATE.sub("", token)
        words = LETTERS.findall(token)
        if not words or token in self._own.tokens or token in self._bare or token in self._device:
            return True
        if is_public(token) or self._is_cut(token):
            return True
        is_place = _PLACE.search(token) and not token.startswith("torch.")
        return not is_place and all(map(self._own.knows, words))

    def _is_cut(self, token: str) -> bool:
        """Whether it is the name of a kernel, cut to fit a line."""
        head, cut, tail = token.partition("…")
        return bool(cut and head) and any(
            name.startswith(head) and name.endswith(tail) for name in self._public
        )


def is_public(name: str) -> bool:
    """Whether torch or CUDA gave it this name: ATen ops, nodes of autograd, calls of the runtime."""
    return any(pattern.fullmatch(name) for pattern in (_OP, _NODE, _CALL, _MADE_BY_TORCH))


def _is_foreign(kernel: str) -> bool:
    """On a CPU what counts as a kernel is an op, which may be the job's own."""
    return _LIKE_OP.fullmatch(kernel) is not None and _OP.fullmatch(kernel) is None


def _forms(names: Iterable[str]) -> frozenset[str]:
    """Names as they are, and as sentences write them."""
    every = list(names)
    short = [kernel_name(name) for name in every]
    bare = (name.partition("<")[0] for name in short)
    return frozenset({*every, *map(clean, every), *short, *bare} - {""})


def _bare_forms(op: str) -> tuple[str, str]:
    """An op without its namespace, and without what says how it is done."""
    bare = op.rpartition("::")[2]
    return bare, re.sub(r"^_*(?:native_|cudnn_|miopen_|mkldnn_|foreach_)?", "", bare)


def _any_of(names: Iterable[str], pattern: str = "") -> re.Pattern[str]:
    """One of these, or what fits the pattern, standing by itself; the longest where several would do."""
    kept = sorted({clean(name) for name in names} - {""}, key=len, reverse=True)
    either = "|".join([*map(re.escape, kept), *([pattern] if pattern else [])])
    return re.compile(rf"(?<![\w.:/-])({either})(?![\w/…-]|:[\w:])" if either else r"(?!)()")


# Beside the document


def _names_of(step: StepTimeline) -> tuple[list[str], set[str]]:
    """All names, and those that the host's threads bear."""
    column = array("I", step.name)
    if sys.byteorder == "big":
        column.byteswap()
    on_host: set[str] = set()
    at = 0
    for lane in step.lanes:
        if step.tracks[lane.track].side == "host":
            on_host.update(step.names[index] for index in set(column[at : at + lane.count]))
        at += lane.count
    return step.names, on_host


def _series(series: Series, pen: _Pen) -> Series:
    """What is drawn beside the document."""
    step = series.timeline
    command = ["SCRIPT", *(["ARGUMENTS"] if len(series.command) > 1 else [])] if series.command else []
    return Series(
        timeline=None if step is None else _timeline(step, pen),
        why_no_timeline=pen.text(series.why_no_timeline),
        steps=pen.fields(series.steps),
        why_no_steps=pen.text(series.why_no_steps),
        command=command,
        started=series.started,
        versions=_versions(series.versions, pen),
        rank=series.rank,
    )


def _timeline(step: StepTimeline, pen: _Pen) -> StepTimeline:
    _, on_host = _names_of(step)
    tracks = [
        track if _OWN_TRACK.fullmatch(track.label) else Track(pen.renamed(track.label, "thread"), track.side)
        for track in step.tracks
    ]
    names = [pen.name(name, on_host=name in on_host) for name in step.names]
    return msgspec.structs.replace(step, tracks=tracks, names=names, kind=pen.text(step.kind))


def _versions(versions: Mapping[str, str], pen: _Pen) -> dict[str, str]:
    """Of packages that findwall knows, where a version is one: that of the system may name a machine."""
    told = {name: pen.version(value) for name, value in versions.items() if pen.text(name) == name}
    return {name: value for name, value in told.items() if value != MASK}
