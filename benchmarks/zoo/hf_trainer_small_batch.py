"""Hugging Face Trainer, unmodified, on a small GPT-2 with batch 1.

Truth: overhead / launch-bound. 128 tokens a step: a few thousand tiny kernels, which the host
(PyTorch, the model's Python and the Trainer's own bookkeeping) issues one at a time.
"""

import tempfile
import time

import torch
from stepclock import arguments, synchronize
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

WALLS = [["overhead", "launch-bound"]]
ALSO = []
FIXES = []
WARMUP = 3


class Tokens(Dataset):
    def __init__(self, vocabulary: int, length: int) -> None:
        self.rows = torch.randint(vocabulary, (64, length), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = self.rows[index % len(self.rows)]
        return {"input_ids": row, "labels": row}


class Clock(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs) -> None:
        if state.global_step == WARMUP:
            synchronize()
            self.begin = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs) -> None:
        synchronize()
        mean = (time.perf_counter() - self.begin) / (state.global_step - WARMUP)
        print(f"mean step ms {mean * 1e3:.3f}")


def main() -> None:
    chosen = arguments(steps=200)
    small = chosen.size == "cpu"
    length = 16 if small else 128
    width, layers = (32, 2) if small else (512, 12)
    config = GPT2Config(n_layer=layers, n_embd=width, n_head=4, vocab_size=8192, n_positions=length)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder,
            per_device_train_batch_size=1,
            max_steps=chosen.steps + WARMUP,
            bf16=not small,
            use_cpu=small,
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        data = Tokens(8192, length)
        Trainer(GPT2LMHeadModel(config), settings, train_dataset=data, callbacks=[Clock()]).train()


if __name__ == "__main__":
    main()
