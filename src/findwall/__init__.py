"""findwall: why a PyTorch job is slow, what to change, what that is worth, and the proof.

Nothing heavy is imported here: a training job pays only for what it uses.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's, without loading it: for `python -m` the job's folder comes first here

__version__ = "0.1.0"

if TYPE_CHECKING:
    from typing import Any

    from findwall.api import measure, read

__all__ = ["__version__", "measure", "read"]


def __getattr__(name: str) -> Any:
    if name in ("read", "measure"):
        from findwall import api

        return getattr(api, name)
    raise AttributeError(f"module 'findwall' has no attribute {name!r}")
