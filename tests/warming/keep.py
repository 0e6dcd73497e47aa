"""Keeps torch and the compiler out of sight, and forks a process for whoever asks. Says where it is asked."""

import importlib.abc
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import sys
import types


class Kept(importlib.abc.Loader):
    """A module that has been executed, with all that came with it: they come back when it is imported."""

    def __init__(self, name: str, before: set[str]) -> None:
        self.name, self.module, self.spec = name, sys.modules[name], sys.modules[name].__spec__
        new = {one: module for one, module in sys.modules.items() if one not in before}
        self.modules = {one: new[one] for one in new if one.split(".")[0] not in sys.stdlib_module_names}

    def hide(self) -> None:
        """The standard library's modules stay: two of each would not know each other."""
        for name, module in self.modules.items():
            del sys.modules[name]
            parent, _, child = name.rpartition(".")
            if parent not in self.modules and vars(sys.modules.get(parent, self)).get(child) is module:
                delattr(sys.modules[parent], child)

    def create_module(self, spec: object) -> types.ModuleType:
        return self.module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self.spec
        importlib.import_module("numpy")  # torch does, where it is there
        for name, one in self.modules.items():
            sys.modules.setdefault(name, one)
            parent, _, child = name.rpartition(".")
            if parent and parent not in self.modules:
                setattr(sys.modules[parent], child, one)


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self, kept: list[Kept]) -> None:
        self.kept = kept

    def find_spec(self, fullname: str, path: object, target: object = None) -> object:
        for kept in self.kept:
            if fullname in kept.modules:
                # One of the others alone, if it is asked for first.
                loader = kept if fullname == kept.name else Alone(kept.modules[fullname])
                places = getattr(kept.modules[fullname].__spec__, "submodule_search_locations", None)
                origin = getattr(kept.modules[fullname].__spec__, "origin", None)
                spec = importlib.util.spec_from_loader(fullname, loader, origin=origin)
                spec.submodule_search_locations = places
                return spec
        return None


class Alone(importlib.abc.Loader):
    def __init__(self, module: types.ModuleType) -> None:
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: object) -> types.ModuleType:
        return self.module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self.spec


def keep() -> Finder:
    """In the order in which a job imports them."""
    kept = []
    for name in ("numpy", "torch", "torch._dynamo"):
        before = set(sys.modules)
        importlib.import_module(name)
        kept.append(Kept(name, before))
    for one in reversed(kept):
        one.hide()
    return Finder(kept)


def become(line: socket.socket, finder: Finder) -> None:
    """In the fork: what `python WORDS` would be in the process that asks."""
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
    sys.modules["__main__"] = types.ModuleType("__main__")
    if words[0] == "-m":
        sys.argv, sys.path[0] = ["-m", *words[2:]], folder
        runpy._run_module_as_main(words[1])
    else:
        raise SystemExit(f"{words[0]}: only -m is kept")


def main() -> None:
    finder = keep()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a person's Ctrl-C ends pytest, and that ends this
    address = f"findwall-warm-{os.getpid()}"
    door = socket.socket(socket.AF_UNIX)
    door.bind("\0" + address)
    door.listen()
    print(address, flush=True)
    waiting = select.poll()
    waiting.register(0, 0)  # it hangs up with pytest
    waiting.register(door, select.POLLIN)
    ends: dict[int, tuple[int, socket.socket]] = {}  # by what becomes readable once the process has ended
    lines: dict[int, int] = {}
    while True:
        ready = {number for number, _ in waiting.poll()}
        if 0 in ready:
            break
        for end in ready & set(ends):
            child, line = ends.pop(end)
            waiting.unregister(end)
            os.close(end)
            if lines.pop(line.fileno(), None) is not None:
                waiting.unregister(line)
                line.send(b"%d\n" % os.waitpid(child, 0)[1])
            line.close()
        for number in ready & set(lines):  # nobody waits for it any more
            waiting.unregister(number)
            os.kill(lines.pop(number), signal.SIGKILL)
        if door.fileno() in ready:
            line, _ = door.accept()
            child = os.fork()
            if child == 0:
                for other in (*ends, *lines, door.fileno()):
                    os.close(other)
                return become(line, finder)
            end = os.pidfd_open(child)
            ends[end], lines[line.fileno()] = (child, line), child
            waiting.register(end, select.POLLIN)
            waiting.register(line, 0)
    for child in lines.values():
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
