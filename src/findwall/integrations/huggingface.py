"""A callback for the Hugging Face Trainer: `Trainer(..., callbacks=[FindwallCallback()])`."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from findwall.loop import measure


class FindwallCallback(TrainerCallback):  # type: ignore[misc]
    """Measures the training as `findwall run` would; takes its options."""

    def __init__(self, **options: Any) -> None:
        self._measure = measure("trainer", caller="FindwallCallback", **options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._measure.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._measure.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._measure.__exit__(None, None, None)
