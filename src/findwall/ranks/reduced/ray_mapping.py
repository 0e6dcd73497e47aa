"""The same map on a Ray cluster that runs already: each file is one task, and a summary comes back.

Whoever dies meanwhile, a process or a whole node, costs its files another try elsewhere. Ray is imported for
this alone, and asked for nothing but what stands here.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from findwall.errors import InputError, first_line
from findwall.ranks.reduced.mapping import Progress, Reduced, reduced, tell
from findwall.readers.remote_paths import place

# Of one file, beyond the first: a cluster of machines that are taken away loses several in an hour. A file
# that ends every process that reads it is given up after these. Chosen by hand.
TRIES_MORE = 3
_ANSWER_S = 10.0  # of a machine that is there; ray itself would try for many minutes. Chosen by hand.
_HOST_AND_PORT = re.compile(r"(?:ray://)?([^/\s]+):(\d{1,5})")


def reduce_on_ray(paths: list[Path], address: str, progress: Progress | None = None) -> Iterator[Reduced]:
    """In the order of the paths."""
    with _cluster(address) as ray:
        task = ray.remote(num_cpus=1, max_retries=TRIES_MORE)(_reduce_there)
        answers = [(path, task.remote(str(path), str(Path.cwd()))) for path in paths]
        answers.reverse()
        for done in range(1, len(paths) + 1):
            path, answer = answers.pop()  # what was fetched need not be kept there
            try:
                yield msgspec.msgpack.decode(ray.get(answer), type=Reduced)
            except ray.exceptions.RayError as error:
                reason = f"{path} could not be reduced on the cluster ({_cause(error)})."
                yield Reduced(str(path), refused=reason)
            tell(progress, done, len(paths))


def _reduce_there(name: str, folder: str) -> bytes:
    """On a machine of the cluster: the file as the person named it, from the folder they stood in."""
    with suppress(OSError):  # an address, or an absolute path, needs none
        os.chdir(folder)
    return msgspec.msgpack.encode(reduced(place(name)))


def _cause(error: Exception) -> str:
    """The last line of a remote error says what it was; those before are the way there."""
    lines = str(error).strip().splitlines()
    return first_line(Exception(lines[-1])) if lines else type(error).__name__


def _knock(address: str) -> None:
    """Raises where nobody listens there."""
    named = _HOST_AND_PORT.fullmatch(address)
    if named is not None:
        socket.create_connection((named[1].strip("[]"), int(named[2])), _ANSWER_S).close()


@contextmanager
def _cluster(address: str) -> Iterator[Any]:
    try:
        import ray
    except ImportError as error:
        hint = (
            "Install it (pip install 'findwall[ray]'), or leave --ray out: this machine's cores will do it."
        )
        raise InputError("--ray needs ray, which is not installed.", hint) from error
    ours = not ray.is_initialized()
    if ours:
        try:
            _knock(address)
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # each way of not reaching one has an error of its own
            raise InputError(
                f"No Ray cluster answers at {address} ({first_line(error)}).",
                "Give the address that `ray start --head` printed, or auto on a machine of the cluster.",
            ) from error
    try:
        if ray.cluster_resources().get("CPU", 0) < 1:
            raise InputError(f"The Ray cluster at {address} has no CPU to read on.", "Add a node to it.")
        yield ray
    finally:
        if ours:
            ray.shutdown()
