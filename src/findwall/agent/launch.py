"""Run a person's script as the real `__main__` of this interpreter, as `python script.py` would."""

from __future__ import annotations

import atexit
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import re
import signal
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any, NoReturn

from findwall.agent.ending import after_the_job, analyst
from findwall.agent.ending.analyst import write_late
from findwall.agent.ending.stderr import say
from findwall.agent.ending.telling import Speak
from findwall.agent.hiding import hide_own_modules
from findwall.agent.membership import this_rank
from findwall.agent.options import Options, disabled
from findwall.agent.secrets import mask_text
from findwall.agent.session import Session
from findwall.apply.applying import Effects
from findwall.apply.registry import REGISTRY
from findwall.errors import InputError
from findwall.model.measurement import DIAGNOSIS_FILE

ENDS = "the process leaves as plain Python would, with what a gate decides"
PACKAGE = str(Path(__file__).resolve().parents[1]) + os.sep

# What a gate makes of the run folder of a job that ended well: an exit code, and what to say.
Judge = Callable[[Path | None], tuple[int, str]]


def launch(
    target: str,
    arguments: list[str],
    is_module: bool,
    options: Options,
    effects: Effects | None = None,
    judge: Judge | None = None,
    speak: Speak | None = None,
) -> None:
    """Run the job under findwall and leave as it leaves: SystemExit carries its exit code. `effects`: fixes
    that are made in it; `judge`: decides on the exit code of a job that ended well; `speak`: puts a claim
    into words."""
    hide_own_modules()
    try:
        code, module = _load_module(target) if is_module else _load_script(target)
    except (SyntaxError, ValueError):  # ValueError: null bytes, in older versions
        _leave_to_python(target, arguments, is_module)
    sys.argv[:] = [str(module.__file__) if is_module else target, *arguments]
    atexit.register(_die_if_interrupted)  # first in, so that it runs after the job's own
    REGISTRY.hold("session", "atexit", None, past_end=ENDS)
    session = None
    if judge is not None:
        atexit.register(_judge_late)  # as above: it runs after the session has closed
    own = os.getpid()
    if not disabled():
        analyst.prepare(options, this_rank())
        session = Session.begin(target, [target, *arguments], options, effects, speak)
    _become_main(module)
    try:
        _execute(code, module, session)
    except SystemExit as leaving:
        ended_well = leaving.code is None or (isinstance(leaving.code, int) and leaving.code == 0)
        if judge is None or not ended_well:
            raise
    if judge is not None and os.getpid() == own:  # a forked child that comes by here is no run
        _leave(_judged(session, judge))
    _leave(0)  # the rest of the way out is the interpreter's: it knows what a job may do to its streams


def _leave_to_python(target: str, arguments: list[str], is_module: bool) -> NoReturn:
    """A script that cannot be compiled: plain python says so in its own words."""
    os.execv(sys.executable, [sys.executable, *(["-m"] if is_module else []), target, *arguments])


def _load_script(target: str) -> tuple[CodeType, ModuleType]:
    path = os.path.abspath(target)  # noqa: PTH100 - as the interpreter does: symlinks stay
    if os.path.isdir(path) or not os.path.exists(path) or _is_archive(path):  # noqa: PTH110, PTH112
        return _load_container(target, path)
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        raise InputError(f"cannot open {target}: {error.strerror}.", "findwall run SCRIPT ARGS…") from error
    module = _new_main(path, importlib.machinery.SourceFileLoader("__main__", path), None)
    _set_first_path(os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
    return compile(source, path, "exec", dont_inherit=True), module


def _is_archive(path: str) -> bool:
    return zipfile.is_zipfile(path)


def _load_container(target: str, path: str) -> tuple[CodeType, ModuleType]:
    """A folder or zip file with a `__main__.py` in it."""
    finder = None
    if os.path.exists(path):  # noqa: PTH110
        _set_first_path(path)
        finder = importlib.machinery.PathFinder.find_spec("__main__", [path])
    if finder is None or finder.loader is None:
        hint = "findwall run SCRIPT ARGS…, or findwall run -m MODULE ARGS…"
        if re.fullmatch(r"python[\d.]*", target):
            hint = f"leave {target} out: findwall is the interpreter ({hint})"
        elif target == "torchrun":
            hint = "torchrun ARGS… -m findwall run SCRIPT ARGS…"
        if os.path.isdir(path):  # noqa: PTH112
            raise InputError(f"'{target}' is a folder without a __main__.py.", hint)
        raise InputError(f"there is no script '{target}'.", hint)
    return _code_of(finder), _new_main(str(finder.origin), finder.loader, None)


def _load_module(name: str) -> tuple[CodeType, ModuleType]:
    _set_first_path(os.getcwd())  # noqa: PTH109
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        raise InputError(f"no module named {error.name or name}.", "findwall run -m MODULE ARGS…") from error
    if spec is None or spec.loader is None:
        raise InputError(f"no module {name} that can be run.", "findwall run -m MODULE ARGS…")
    return _code_of(spec), _new_main(str(spec.origin), spec.loader, spec)


def _code_of(spec: importlib.machinery.ModuleSpec) -> CodeType:
    code = spec.loader.get_code(spec.name) if hasattr(spec.loader, "get_code") else None  # type: ignore[union-attr]
    if code is None:
        raise InputError(f"no code to run in {spec.name}.")
    return code  # type: ignore[no-any-return]


def _new_main(file: str, loader: Any, spec: importlib.machinery.ModuleSpec | None) -> ModuleType:
    """As the interpreter's own: spawned workers find it again by `__file__`, or by `__spec__`."""
    module = ModuleType("__main__")
    module.__file__ = file
    module.__loader__ = loader
    module.__spec__ = spec
    module.__package__ = spec.parent if spec is not None else None
    module.__dict__["__cached__"] = spec.cached if spec is not None else None
    module.__dict__["__builtins__"] = sys.modules["builtins"]
    if sys.version_info < (3, 14):
        module.__annotations__ = {}
    return module


def _set_first_path(folder: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder


_former_main: list[ModuleType] = []  # kept alive: a module that dies takes its globals with it


def _become_main(module: ModuleType) -> None:
    _former_main.append(sys.modules["__main__"])
    sys.modules["__main__"] = module


def _execute(code: CodeType, module: ModuleType, session: Session | None) -> None:
    try:
        exec(code, module.__dict__)
    except SystemExit as leaving:
        _close(session, "" if leaving.code in (None, 0) else mask_text(f"exit code {leaving.code}"))
        raise
    except KeyboardInterrupt as error:
        _show(error)
        _interrupted.append(True)
        _close(session, "KeyboardInterrupt")
        _leave(130)
    except BaseException as error:  # noqa: BLE001 - shown and turned into exit code 1, as the interpreter does
        _show(error)
        _close(session, type(error).__name__, error)
        _leave(1)
    else:
        _close(session, "")


def _leave(code: int) -> NoReturn:
    raise SystemExit(code) from None


def _close(session: Session | None, failure: str, error: BaseException | None = None) -> None:
    if session is None:
        return
    main = threading.main_thread()
    if not failure and any(t is not main and not t.daemon and t.is_alive() for t in threading.enumerate()):
        return  # the job goes on in a thread of its own; the session closes at exit
    session.close(failure, error)
    _deliver(session, interrupted=failure == "KeyboardInterrupt")
    if not failure:
        _look_closer(session)


_late: list[tuple[Session, Judge]] = []


def _judged(session: Session | None, judge: Judge) -> int:
    """The exit code of a job that ended well."""
    if session is not None and not session.rank.speaks:
        return 0  # the rank that has the verdict judges
    if session is not None and not session.is_closed:
        _late.append((session, judge))
        return 0
    code, said = judge(None if session is None else session.folder)
    if said:
        say(said)
    return code


def _judge_late() -> None:
    """Where the job went on in threads, its exit code is settled by now: only leaving at once changes it."""
    if not _late:
        return
    code = _judged(*_late.pop())
    if code:
        _flush()
        os._exit(code)


def _look_closer(session: Session) -> None:
    """The job has ended well and nothing else wants its device."""
    folder, options = session.folder, session.options
    if not session.rank.speaks or folder is None:
        return
    try:
        if options.probe:
            after_the_job.probe(folder, options)
        elif session.rank.world_size == 1 and after_the_job.may_decide(folder, options):
            after_the_job.judge_with_ceilings(folder, options)
    except Exception as error:  # noqa: BLE001 - fail open: the job's own ending passes through, whatever breaks
        say(f"cannot look closer ({type(error).__name__}: {error}); `findwall read {folder}` shows it again")


def _deliver(session: Session, interrupted: bool) -> None:
    """A document asked for with --json is written however the job ended."""
    folder, options = session.folder, session.options
    if options.json is None or not options.verdict or not session.rank.speaks or folder is None:
        return
    if not interrupted and (folder / DIAGNOSIS_FILE).is_file():
        return  # the verdict that was begun in time has written it; only an interrupted job does not wait
    try:
        write_late(folder, options)
    except Exception as error:  # noqa: BLE001 - fail open: the job's own ending passes through, whatever breaks
        say(f"cannot write {options.json} ({type(error).__name__}: {error})")


def _show(error: BaseException) -> None:
    """Through the job's own hook, and where that fails, in the interpreter's words for it."""
    _strip(error, set())
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit:
        raise
    except BaseException as failure:  # noqa: BLE001 - the job's own hook: it may raise anything
        _strip(failure, set())
        failure.__context__ = failure.__context__ if failure.__context__ is not error else None
        for title, shown in (("Error in sys.excepthook:\n", failure), ("\nOriginal exception was:\n", error)):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # a stream that is closed or gone
                sys.stderr.write(title)
            sys.__excepthook__(type(shown), shown, shown.__traceback__)


def _strip(error: BaseException | None, seen: set[int]) -> None:
    """Take findwall's frames out of a traceback: a person reads the one that plain python would show."""
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = _without_own_frames(error.__traceback__)
        _strip(error.__cause__, seen)
        error = error.__context__


def _without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """The same entries, linked past ours: one made anew would need a line, and not every place has one."""
    kept = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(PACKAGE):
            kept.append(trace)
        trace = trace.tb_next
    for entry, following in zip(kept, [*kept[1:], None], strict=False):
        entry.tb_next = following
    return kept[0] if kept else None


_interrupted: list[bool] = []


def _die_if_interrupted() -> None:
    """An interrupted python dies of SIGINT itself, so that shells and schedulers see it; so do we."""
    if not _interrupted:
        return
    _flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed or replaced: nothing left to flush
            continue
