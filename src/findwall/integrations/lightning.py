"""A callback for Lightning: `Trainer(..., callbacks=[FindwallCallback()])`."""

from __future__ import annotations

from typing import Any

from findwall.integrations.trackers import Trackers
from findwall.loop import measure

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:  # the older package of the same thing
    from pytorch_lightning.callbacks import Callback


class FindwallCallback(Callback):  # type: ignore[misc]
    """Measures the training as `findwall run` would; takes its options.

    Its figures are also logged to Weights & Biases, MLflow or TensorBoard where the job uses one.
    """

    def __init__(self, **options: Any) -> None:
        self._measure = measure("trainer", caller="FindwallCallback", **options)
        self._trackers = Trackers()
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
        self._end(trainer, None)

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        self._end(trainer, exception)

    def _end(self, trainer: Any, error: BaseException | None) -> None:
        self._measure.__exit__(None if error is None else type(error), error, None)
        self._trackers.tell(self._measure, getattr(trainer, "loggers", ()), trainer.global_step)
