"""A callback for Lightning: `Trainer(..., callbacks=[FindwallCallback()])`."""

from __future__ import annotations

from typing import Any

from findwall.loop import measure

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:  # the older package of the same thing
    from pytorch_lightning.callbacks import Callback


class FindwallCallback(Callback):  # type: ignore[misc]
    """Measures the training as `findwall run` would; takes its options."""

    def __init__(self, **options: Any) -> None:
        self._measure = measure("trainer", caller="FindwallCallback", **options)
        self._seen = 0

    def on_train_start(self, trainer: Any, module: Any) -> None:
        self._seen = trainer.global_step
        self._measure.__enter__()

    def on_train_batch_end(self, trainer: Any, module: Any, *rest: Any) -> None:
        # With gradient accumulation a batch is not a step: the trainer's own count of optimizer steps is.
        if trainer.global_step != self._seen:
            self._seen = trainer.global_step
            self._measure.step()

    def on_train_end(self, trainer: Any, module: Any) -> None:
        self._measure.__exit__(None, None, None)

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        self._measure.__exit__(type(exception), exception, None)
