"""A command line as a person types it in front of a job: `python -m pkg.train`, `torchrun … train.py`.

It is taken apart into the words that start processes, the script or module, and its arguments; `findwall run`
goes between the first two, so that every process of the job is one that findwall measures.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from findwall.errors import InputError
from findwall.files import program

_PYTHON = re.compile(r"pypy[0-9.]*|python[0-9.]*")
_VALUED = "WX"  # python's short options with a value
# Options that have no value, by launcher. All others have one; a test reads them off the launchers' parsers.
_TORCHRUN = frozenset({"-h", "--help", "--standalone", "--run-path", "--virtual-local-rank"})
_ACCELERATE = frozenset(
    {"-h", "--help", "-q", "--quiet", "--cpu", "--multi-gpu", "--tpu", "--enable-cpu-affinity"}
    | {"--dynamo-use-fullgraph", "--dynamo-use-dynamic", "--dynamo-use-regional-compilation"}
    | {"--use-deepspeed", "--use-fsdp", "--use-parallelism-config", "--use-megatron-lm", "--same-network"}
    | {"--tpu-cluster", "--no-tpu-cluster", "--tpu-use-sudo", "--downcast-bf16", "--debug"}
    | {"--fp8-use-autocast-during-eval"}
)
_DEEPSPEED = frozenset({"-h", "--help", "--no-ssh", "--no-ssh-check", "--force-multi", "--no-local-rank"})
_MODULE = frozenset({"-m", "--module"})
_NO_PYTHON = "--no-python"  # what follows is a command, and no script
_LAUNCHERS = {
    ("torchrun",): _TORCHRUN,
    ("accelerate", "launch"): _ACCELERATE,
    ("accelerate-launch",): _ACCELERATE,
    ("deepspeed",): _DEEPSPEED,
}
_MODULES = {  # launchers that `python -m` starts
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN | {"--use-env"},
    "accelerate.commands.launch": _ACCELERATE,
}
_LEFT_OUT = frozenset({"--run-path"})  # torchrun would take findwall's name for the path of a script
_HOW = "findwall try [LAUNCHER …] SCRIPT ARGS…"


class Launch(msgspec.Struct, frozen=True):
    """A job's command line, taken apart."""

    launcher: tuple[str, ...]  # up to where a module's name can follow; empty: this very interpreter
    target: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    def command(self, words: Sequence[str]) -> tuple[str, ...]:
        """The same job under `python -m findwall`, with these words of it before the script."""
        module = ("-m",) if self.is_module else ()
        start = self.launcher or (sys.executable,)
        return (*start, "-m", "findwall", *words, *module, self.target, *self.arguments)

    def elsewhere(self) -> Launch:
        """To be started from another folder: what is named by its path keeps its place."""
        launcher = tuple(_placed(word) if at == 0 else word for at, word in enumerate(self.launcher))
        target = self.target if self.is_module else str(Path(self.target).absolute())
        return msgspec.structs.replace(self, launcher=launcher, target=target)

    @property
    def front(self) -> str:
        """What a person writes before findwall's own options to run it again."""
        return shlex.join((*self.launcher, "-m", "findwall", "run")) if self.launcher else "findwall run"

    @property
    def plain(self) -> str:
        """What they write to run it without findwall."""
        module = ("-m",) if self.is_module else ()
        return shlex.join((*(self.launcher or ("python",)), *module, self.target, *self.arguments))

    @property
    def job(self) -> str:
        """And what they write behind them."""
        return shlex.join((*(("-m",) if self.is_module else ()), self.target, *self.arguments))


def launch_of(words: Sequence[str], is_module: bool = False) -> Launch:
    """`is_module`: the first word is one, as a person said."""
    if is_module or _is_script(words[0]):
        return Launch((), words[0], tuple(words[1:]), is_module)
    at = next((number for number in range(len(words)) if _starts_python(words, number)), None)
    if at is None or (at > 0 and program(words[0]) is None):
        return Launch((), words[0], tuple(words[1:]))
    first = _found(words[0])
    found = _from_python(words, at) if _PYTHON.fullmatch(Path(words[at]).name) else _from_launcher(words, at)
    return msgspec.structs.replace(found, launcher=(first, *found.launcher[1:]))


def _placed(word: str) -> str:
    """A command that is looked for on the path has none."""
    return word if Path(word).name == word else str(Path(word).absolute())


def _is_script(word: str) -> bool:
    return word.endswith((".py", ".pyz")) or Path(word, "__main__.py").is_file()


def _starts_python(words: Sequence[str], at: int) -> bool:
    name = Path(words[at]).name
    return bool(_PYTHON.fullmatch(name)) or _launcher_at(words, at) is not None


def _launcher_at(words: Sequence[str], at: int) -> tuple[str, ...] | None:
    here = (Path(words[at]).name, *words[at + 1 : at + 2])
    return next((known for known in _LAUNCHERS if here[: len(known)] == known), None)


def _found(word: str) -> str:
    """Where the command is: on the path, or beside the interpreter of an environment that is not active."""
    if Path(word).name != word:
        return word
    if (found := program(word)) is not None:
        return word if shutil.which(word) == found else found  # not one that only lies in this folder
    beside = Path(sys.executable).with_name(word)
    if beside.is_file():
        return str(beside)
    raise InputError(f"there is no {word} here.", _HOW)


def _from_python(words: Sequence[str], at: int) -> Launch:
    """`python [options] script`, or `-m module`, which may be a launcher itself."""
    at += 1
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        if word.startswith("--"):
            at += 2 if word == "--check-hash-based-pycs" else 1
            continue
        letters = re.match(r"-[^cmWX]*([cmWX]?)(.*)", word)
        assert letters is not None
        option, attached = letters.groups()
        if option == "m":
            rest = words[at + 1 :] if not attached else (attached, *words[at + 1 :])
            kept = () if len(word) == len(attached) + 2 else (word[: len(word) - len(attached) - 1],)
            return _from_module((*words[:at], *kept), rest)
        if option == "c":
            break
        at += 1 if attached or option not in _VALUED or not option else 2
    if at >= len(words) or words[at].startswith("-"):
        raise InputError("there is no script or module in this command.", _HOW)
    return Launch(tuple(words[:at]), words[at], tuple(words[at + 1 :]))


def _from_module(before: tuple[str, ...], words: Sequence[str]) -> Launch:
    if not words:
        raise InputError("there is no module behind -m.", _HOW)
    if words[0] in _MODULES:
        return _after_options((*before, "-m", words[0]), words[1:], _MODULES[words[0]])
    return Launch(before, words[0], tuple(words[1:]), is_module=True)


def _from_launcher(words: Sequence[str], at: int) -> Launch:
    known = _launcher_at(words, at)
    assert known is not None
    at += len(known)
    return _after_options(tuple(words[:at]), words[at:], _LAUNCHERS[known])


def _after_options(before: tuple[str, ...], words: Sequence[str], flags: frozenset[str]) -> Launch:
    """The launcher's own options end at its first word that is none, nor the value of one."""
    at, is_module, kept = 0, False, list(before)
    while at < len(words) and words[at].startswith("-"):
        option = words[at].replace("_", "-") if words[at].startswith("--") else words[at]
        if option == _NO_PYTHON:
            return _behind((*kept, words[at]), words[at + 1 :])
        is_module |= option in _MODULE
        valued = _has_value(option, words[at + 1 : at + 2], flags)
        if option not in _MODULE | _LEFT_OUT:
            kept += words[at : at + 1 + valued]
        at += 1 + valued
    if at >= len(words):
        raise InputError("there is no script in this command.", _HOW)
    return Launch(tuple(kept), words[at], tuple(words[at + 1 :]), is_module)


def _has_value(option: str, following: Sequence[str], flags: frozenset[str]) -> bool:
    """A flag that is not known here (a newer launcher's) is told by what follows: an option, or a script."""
    if option in flags | _MODULE or "=" in option or not following:
        return False
    return not following[0].startswith("-") and not following[0].endswith(".py")


def _behind(before: tuple[str, ...], words: Sequence[str]) -> Launch:
    inner = launch_of(words) if words else None
    if inner is None or not inner.launcher:
        raise InputError("--no-python is followed by no python.", _HOW)
    return msgspec.structs.replace(inner, launcher=(*before, *inner.launcher))
