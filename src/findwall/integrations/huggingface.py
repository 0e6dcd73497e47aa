"""A callback for the Hugging Face Trainer: `Trainer(..., callbacks=[FindwallCallback()])`."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from findwall.integrations.trackers import Trackers
from findwall.loop import measure


class FindwallCallback(TrainerCallback):  # type: ignore[misc]
    """Measures the training as `findwall run` would; takes its options.

    Its figures are also logged to Weights & Biases, MLflow or TensorBoard where the job uses one.
    """

    def __init__(self, **options: Any) -> None:
        self._measure = measure("trainer", caller="FindwallCallback", **options)
        self._trackers = Trackers()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._trackers.look()
        self._measure.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        try:
            self._measure.step()
        except SystemExit:  # stop=True: the verdict is there, and the trainer calls nobody any more
            self._tell(state)
            raise

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._measure.__exit__(None, None, None)
        self._tell(state)

    def _tell(self, state: Any) -> None:
        self._trackers.tell(self._measure, step=getattr(state, "global_step", None))
