"""Libraries that run the loop of a job, and what they take their settings in."""

from __future__ import annotations

from collections.abc import Mapping

TRAINERS = {
    "transformers": ("TrainingArguments",),  # Seq2SeqTrainingArguments as well
    "lightning": (".Trainer",),
    "pytorch_lightning": (".Trainer",),
    "accelerate": (".Accelerator",),
}


def settings_text(library: str, values: Mapping[str, str]) -> str:
    listed = ", ".join(f"{name}={value}" for name, value in values.items())
    return f"`{TRAINERS[library][0].lstrip('.')}({listed})`"
