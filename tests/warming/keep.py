"""Keeps torch and the compiler out of sight, and forks a process for whoever asks. Says where it is asked."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib.abc
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
import types
from pathlib import Path

COMPILER = "torch._dynamo"


class Given(importlib.abc.Loader):
    """Gives a module that has been executed."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: object) -> types.ModuleType:
        return self.module

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__spec__ is not self.spec:  # torch's modules of settings let nobody change it
            module.__spec__ = self.spec


class Kept(Given):
    """With all that came with it: they come back when it is imported, after what was kept first."""

    def __init__(self, name: str, before: set[str], first: list[str]) -> None:
        super().__init__(sys.modules[name])
        self.name, self.first = name, first
        new = {one: module for one, module in sys.modules.items() if one not in before}
        self.modules = {one: new[one] for one in new if one.split(".")[0] not in sys.stdlib_module_names}

    def hide(self) -> None:
        """The standard library's modules stay: two of each would not know each other."""
        for name, module in self.modules.items():
            del sys.modules[name]
            parent, _, child = name.rpartition(".")
            if parent not in self.modules and vars(sys.modules.get(parent, self)).get(child) is module:
                delattr(sys.modules[parent], child)

    def exec_module(self, module: types.ModuleType) -> None:
        super().exec_module(module)
        for name in self.first:
            importlib.import_module(name)
        for name, one in self.modules.items():
            sys.modules.setdefault(name, one)
            parent, _, child = name.rpartition(".")
            if parent and parent not in self.modules:
                setattr(sys.modules[parent], child, one)


class KeptCompiler(Kept):
    """What it does to torch, and notes of it, when it is executed, is done again where the job imports it: by
    then findwall stands around some of that."""

    def __init__(self, name: str, before: set[str], first: list[str]) -> None:
        super().__init__(name, before, first)
        self.torch = sys.modules["torch"]
        self.seeds = self.torch.manual_seed
        # Here and not in each job, which would make all that it looks at its own.
        calls = {id(call): name for name, call in vars(self.torch.nn.Module).items() if callable(call)}
        self.noted = [
            (vars(module), noted, calls[id(value)])
            for module in self.modules.values()
            for noted, value in list(vars(module).items())
            if id(value) in calls
        ]

    def hide(self) -> None:
        super().hide()
        self.torch.manual_seed = self.torch.random.manual_seed

    def exec_module(self, module: types.ModuleType) -> None:
        super().exec_module(module)
        if self.torch.manual_seed is self.torch.random.manual_seed:
            self.torch.manual_seed = self.seeds
        for names, noted, call in self.noted:
            names[noted] = vars(self.torch.nn.Module)[call]


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self, kept: list[Kept]) -> None:
        self.kept = kept

    def find_spec(self, fullname: str, path: object, target: object = None) -> object:
        for kept in self.kept:
            if fullname in kept.modules:
                # One of the others comes alone, if it is asked for first.
                loader = kept if fullname == kept.name else Given(kept.modules[fullname])
                spec = importlib.util.spec_from_loader(
                    fullname, loader, origin=getattr(loader.spec, "origin", None)
                )
                spec.submodule_search_locations = getattr(loader.spec, "submodule_search_locations", None)
                return spec
        return None


def keep(names: list[str]) -> Finder:
    """In the order in which they import each other."""
    kept: list[Kept] = []
    for at, name in enumerate(names):
        before = set(sys.modules)
        importlib.import_module(name)
        kept.append((KeptCompiler if name == COMPILER else Kept)(name, before, names[:at]))
    for one in reversed(kept):
        one.hide()
    tempfile.tempdir = None  # the compiler asked for it, and a job may have another
    return Finder(kept)


status: int | None = None  # that the process will end with, once that is known


def leave() -> None:
    """The job's own variables end, as they do in the end, and the process with them. To take apart all that
    came with torch would make each of its pages this process's own, which takes longer than most jobs."""
    names = vars(sys.modules["__main__"])
    for name in list(names):
        names[name] = None
    gc.freeze()
    if status is not None:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, full, or none: Python tells
            sys.stdout.flush()
            sys.stderr.flush()
            ctypes.CDLL(None).fflush(None)
            os._exit(status)


def become(line: socket.socket, finder: Finder) -> None:
    """In a fork: what `python WORDS` would be, started by the process that asks."""
    head, streams, *_ = socket.recv_fds(line, 10, 3)
    content = b""
    while len(content) < int(head):
        content += line.recv(int(head) - len(content))
    words, folder, environ = json.loads(content)
    line.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.meta_path.insert(0, finder)
    atexit.register(leave)  # before all others: it comes last
    sys.modules["__main__"] = types.ModuleType("__main__")
    if words[0] == "-m":
        sys.argv[:], sys.path[0] = ["-m", *words[2:]], folder
        runpy._run_module_as_main(words[1])
    else:
        script = Path(words[0]).absolute()
        sys.argv[:], sys.path[0] = words, str(script.parent)
        sys.modules["__main__"].__file__ = str(script)
        exec(compile(script.read_bytes(), script, "exec"), vars(sys.modules["__main__"]))


def ended(line: socket.socket, finder: Finder) -> int | None:
    """The same, and the status that it ends with; None: Python finds out."""
    try:
        become(line, finder)
    except SystemExit as leaving:
        code = 0 if leaving.code is None else leaving.code
        if isinstance(code, int):
            return code & 0xFF
        raise
    except Exception as error:  # noqa: BLE001 - shown without the frames below the job's
        own = error.__traceback__ and error.__traceback__.tb_next
        shown = error.with_traceback(own and own.tb_next)
        sys.excepthook(type(shown), shown, shown.__traceback__)
        return 1
    return 0


class Keeper:
    """Forks for those who ask, tells them how it ended, and ends what nobody waits for any more."""

    def __init__(self, address: str) -> None:
        self.door = socket.socket(socket.AF_UNIX)
        self.door.bind("\0" + address)
        self.door.listen()
        self.events = select.poll()
        self.events.register(0, 0)  # hangs up when pytest ends
        self.events.register(self.door, select.POLLIN)
        # Of each process: what becomes readable once it has ended, and the line of who asked for it.
        self.ends: dict[int, tuple[int, socket.socket]] = {}
        self.lines: dict[int, int] = {}

    def fork(self) -> socket.socket | None:
        """Until pytest ends; the line to who asked, in each process that was forked."""
        while True:
            ready = {number for number, _ in self.events.poll()}
            if 0 in ready:
                break
            for end in ready & set(self.ends):
                self.ended(end)
            for number in ready & set(self.lines):
                self.events.unregister(number)
                os.kill(self.lines.pop(number), signal.SIGKILL)
            if self.door.fileno() in ready:
                line, _ = self.door.accept()
                child = os.fork()
                if child == 0:
                    for number in (*self.ends, *(one.fileno() for _, one in self.ends.values())):
                        os.close(number)
                    self.door.close()
                    return line
                self.began(child, line)
        for child, _ in self.ends.values():
            os.kill(child, signal.SIGKILL)
        return None

    def began(self, child: int, line: socket.socket) -> None:
        end = os.pidfd_open(child)
        self.ends[end], self.lines[line.fileno()] = (child, line), child
        self.events.register(end, select.POLLIN)
        self.events.register(line, 0)  # hangs up with who asked

    def ended(self, end: int) -> None:
        child, line = self.ends.pop(end)
        self.events.unregister(end)
        os.close(end)
        status = os.waitpid(child, 0)[1]
        if self.lines.pop(line.fileno(), None) is not None:
            self.events.unregister(line)
            with contextlib.suppress(OSError):
                line.send(b"%d\n" % status)
        line.close()


def main() -> None:
    global status
    finder = keep(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a person's Ctrl-C ends pytest, and with it this
    address = f"findwall-warm-{os.getpid()}"
    keeper = Keeper(address)
    print(address, flush=True)
    line = keeper.fork()
    if line is not None:
        status = ended(line, finder)


if __name__ == "__main__":
    main()
