"""What was seen of a job from outside, while it ran: where its threads were, and what it took of the machine.

Counts and rates only; what they mean is said elsewhere. Unknown is None, never zero.
"""

from __future__ import annotations

import msgspec


class StackFrame(msgspec.Struct, frozen=True, array_like=True):
    """One call on a thread's stack."""

    function: str
    file: str
    line: int


class SeenStack(msgspec.Struct, frozen=True):
    """A stack of Python calls as it was found, innermost first, and how often."""

    frames: tuple[StackFrame, ...]
    holds_lock: bool  # the interpreter's: the thread runs Python, or native code that keeps it
    is_running: bool  # False: it sleeps, or waits for somebody
    count: int = 1


class ProcessUse(msgspec.Struct, frozen=True):
    """What one process and its children took of the machine, on average."""

    cores: float | None = None  # kept busy
    threads: int | None = None
    read_mib_s: float | None = None  # from storage
    write_mib_s: float | None = None
    in_line_share: float | None = None  # of the time: the main thread could have run and had no core
    seconds: float = 0.0


NO_USE = ProcessUse()


class WatchedRank(msgspec.Struct, frozen=True):
    """One process that trains, as it was seen from outside."""

    pid: int
    known_rank: int | None = None  # as its launcher told it; None: nobody did
    gpu: str | None = None  # UUID
    gpus: int | None = 0  # that it uses; None: nobody knows how many, or whether any
    stacks: tuple[SeenStack, ...] = ()  # of the thread that trains
    worker_stacks: tuple[SeenStack, ...] = ()  # of its loader workers' main threads
    workers: int = 0
    texts: dict[str, str] = {}  # "file:line" -> that line, where the file is as old as the job
    use: ProcessUse = NO_USE
    other_thread: str = ""  # the name of the thread that trains, where that is not the main one


class WatchedJob(msgspec.Struct, frozen=True):
    """The watch as a whole."""

    pid: int
    seconds: float
    looks: int = 0  # that found the stacks
    missed: int = 0  # that did not, though others did
    why_no_lines: str = ""  # and what to do about it
    has_ended: bool = False
    is_stopped: bool = False  # a rank of it, for some of the time at least
    settle: str = ""  # the command that would measure what cannot be known from outside
