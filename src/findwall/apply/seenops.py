"""The ops that one call of a model really runs, with the number format they run in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

Saw = Callable[[str, str], None]  # the op's name, and its first tensor's number format: "bfloat16"

PRODUCTS = re.compile(r"mm$|matmul|conv|linear$|einsum|scaled_dot_product|lstm|gru|attn_bias_|baddbmm")


@contextmanager
def seen_ops(torch: Any, saw: Saw) -> Iterator[None]:
    """For one call: every op pays for being seen."""
    with _mode(torch, saw):
        yield


def _mode(torch: Any, saw: Saw) -> Any:
    def look(name: str, given: Any) -> None:
        with suppress(Exception):  # a look, no more
            tensor = next((one for one in given if isinstance(one, torch.Tensor)), None)
            if tensor is not None:
                saw(name, str(tensor.dtype).removeprefix("torch."))

    class Kernels(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        """What is run, with the inputs it reads, autocast's casts done."""

        supports_higher_order_operators = True  # torch.cond and the like run as they do without a look

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            """What the job compiles inside the call is compiled as it is without a look."""
            return True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            look(getattr(getattr(func, "overloadpacket", func), "__name__", ""), args)
            return result

    class Functions(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        """What is called, by what comes out: under inference mode, where the other would run what is made of
        several ops without autocast."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            look(getattr(func, "__name__", ""), result if isinstance(result, tuple) else (result,))
            return result

    return Functions() if torch.is_inference_mode_enabled() else Kernels()
