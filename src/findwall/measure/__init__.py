"""Measuring a running job. Nothing here imports torch: the job does.

The package's name is also the API's verb. Importing any part of it binds `findwall.measure` to this module,
so the module can be called: `with findwall.measure() as m` works before and after.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from findwall.measure.loop import measure


class _CallableModule(ModuleType):
    def __call__(self, name: str = "notebook", **options: Any) -> measure:
        from findwall.measure.loop import measure

        return measure(name, **options)


sys.modules[__name__].__class__ = _CallableModule
