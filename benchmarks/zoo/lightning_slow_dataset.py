"""PyTorch Lightning, unmodified, with a dataset that does its work in the main process.

Truth: data / loader-starved. `num_workers` is left at 0, so each batch is decoded while the device
waits.
"""

import time

import pytorch_lightning as lightning
import torch
from stepclock import arguments, synchronize
from torch import nn
from torch.utils.data import DataLoader, Dataset

WALLS = [["data", "loader-starved"]]
ALSO = []
FIXES = []
WARMUP = 3


class Sounds(Dataset):
    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        wave = torch.randn(self.samples, generator=torch.Generator().manual_seed(index))
        spectrum = torch.stft(wave, 256, 64, window=torch.hann_window(256), return_complex=True).abs()
        return (spectrum + 1e-6).log()[:128, :64], index % 10


class Classifier(lightning.LightningModule):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(),
            nn.Linear(128 * 64, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 10),
        )
        self.begin = 0.0

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-4)

    def on_train_batch_end(self, outputs: object, batch: object, index: int) -> None:
        if self.global_step == WARMUP:
            synchronize()
            self.begin = time.perf_counter()

    def on_train_end(self) -> None:
        synchronize()
        print(f"mean step ms {(time.perf_counter() - self.begin) / (self.global_step - WARMUP) * 1e3:.3f}")


def main() -> None:
    chosen = arguments(steps=100)
    small = chosen.size == "cpu"
    trainer = lightning.Trainer(
        max_steps=chosen.steps + WARMUP,
        accelerator="cpu" if small else "gpu",
        devices=1,
        precision="32-true" if small else "bf16-mixed",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = DataLoader(Sounds(5000 if small else 64_000), batch_size=4 if small else 64)
    trainer.fit(Classifier(16 if small else 2048), data)


if __name__ == "__main__":
    main()
