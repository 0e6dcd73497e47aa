"""Fine-tunes a large BERT to tell patent sections apart, with the Hugging Face Trainer."""

import tempfile

import torch
from common import Clock, arguments
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

WALLS = [["compute", "fast-path-off"]]
FIXES = {
    "tf32": "float32 matmuls may run in TF32 on the tensor cores",
    "bf16": "TrainingArguments(bf16=True)",
}
TRUTH_STEPS = 30
SECTIONS = 9


class Sections(Dataset):
    """Pre-tokenised passages, all cut to one length."""

    def __init__(self, count, length, vocabulary):
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(1000, vocabulary, (512, length), generator=generator)
        self.labels = torch.randint(SECTIONS, (512,), generator=generator)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        at = index % len(self.tokens)
        return {"input_ids": self.tokens[at], "labels": self.labels[at]}


class StepClock(TrainerCallback):
    def __init__(self, clock):
        self.clock = clock

    def on_step_end(self, args, state, control, **kwargs):
        self.clock.tick()


def main():
    args = arguments(150, list(FIXES))
    if args.gpu:
        length, batch = 512, 16
        config = BertConfig(
            hidden_size=1024,
            num_hidden_layers=12,
            num_attention_heads=16,
            intermediate_size=4096,
            num_labels=SECTIONS,
        )
    else:
        length, batch = 32, 4
        config = BertConfig(
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=128,
            num_labels=SECTIONS,
        )
    torch.manual_seed(0)
    if args.fix == "tf32":
        torch.set_float32_matmul_precision("high")
    with args.device:
        model = BertForSequenceClassification(config)
    clock = Clock(args.steps)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder,
            max_steps=args.steps,
            per_device_train_batch_size=batch,
            learning_rate=2e-5,
            optim="adamw_torch_fused" if args.gpu else "adamw_torch",
            bf16=args.fix == "bf16",
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=not args.gpu,
        )
        trainer = Trainer(
            model=model,
            args=settings,
            train_dataset=Sections(args.steps * batch, length, config.vocab_size),
            callbacks=[StepClock(clock)],
        )
        trainer.train()
    clock.report()


if __name__ == "__main__":
    main()
