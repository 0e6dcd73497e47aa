"""Click-through-rate model on ad logs: DCN-v2, 26 hashed categories of 128 values each beside 13 counters, bf16.

Domain: recommender (training, Lightning on the GPU). One step is one optimizer step over 16,384 impressions.
Why: the 26 x 128 embedding values and the 13 raw counters are concatenated, so the cross layers are square in
  26 * 128 + 13 = 3341: an odd number. Every row of the bfloat16 operands starts at an address that is no multiple of
  16 bytes, forward and backward, and the matmuls run on the tensor-core kernels of last resort.
Trap: "recommender" suggests embedding lookups, and their backward is there (sort and scatter); the loss is read with
  `.item()` every 20th step; it is bf16 on tensor cores, so a tool that only asks for the dtype finds nothing wrong.
Fixes: pad_features: three columns of zeros beside the counters make the width 3344;
  project_counters: a small linear layer turns the 13 counters into 128 values (another, customary model: 27 * 128).
"""

import torch
import torch.nn.functional as F
from torch import nn

from common import Clock, arguments

WALLS = [["compute", "misaligned-shapes"]]
FIXES = ["pad_features", "project_counters"]
TRUTH_STEPS = 240
COUNTERS = 13


class DCN(nn.Module):
    def __init__(self, fields, rows, size, cross, tower, fix):
        super().__init__()
        self.fix = fix
        self.table = nn.Embedding(fields * rows, size)
        nn.init.normal_(self.table.weight, std=0.01)
        self.register_buffer("offset", torch.arange(fields) * rows)
        width = fields * size + COUNTERS
        if fix == "pad_features":
            width += -width % 8
        elif fix == "project_counters":
            width = (fields + 1) * size
            self.project = nn.Linear(COUNTERS, size)
        self.width = width
        self.cross = nn.ModuleList(nn.Linear(width, width) for _ in range(cross))
        sizes = [width, *tower]
        self.tower = nn.Sequential(
            *(m for a, b in zip(sizes, sizes[1:]) for m in (nn.Linear(a, b), nn.ReLU(inplace=True)))
        )
        self.head = nn.Linear(tower[-1], 1)

    def forward(self, counters, categories):
        values = self.table(categories + self.offset).flatten(1)
        counters = torch.log1p(counters)
        if self.fix == "project_counters":
            counters = self.project(counters)
        x0 = torch.cat([values.bfloat16(), counters.bfloat16()], dim=1)
        if x0.shape[1] < self.width:
            x0 = F.pad(x0, (0, self.width - x0.shape[1]))
        x = x0
        for layer in self.cross:
            x = torch.addcmul(x, x0, layer(x))
        return self.head(self.tower(x)).squeeze(1)


class Impressions:
    """An endless day of logs: a pool of batches on the device, walked around and around."""

    def __init__(self, pool, batch, fields, rows, device):
        generator = torch.Generator(device).manual_seed(0)
        self.pool = []
        for _ in range(pool):
            counters = torch.rand(batch, COUNTERS, device=device, generator=generator) * 100
            skew = torch.rand(batch, fields, device=device, generator=generator) ** 2
            categories = (skew * rows).long()
            clicks = (torch.rand(batch, device=device, generator=generator) < 0.03 + counters[:, 0] / 500).float()
            self.pool.append((counters, categories, clicks))

    def __iter__(self):
        while True:
            yield from self.pool


def optimizer_of(model, gpu):
    return torch.optim.Adam(model.parameters(), lr=1e-3, fused=gpu)


def fit_lightning(model, batches, args, clock):
    try:
        import lightning
    except ImportError:
        import pytorch_lightning as lightning

    class Job(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, index):
            counters, categories, clicks = batch
            loss = F.binary_cross_entropy_with_logits(self.model(counters, categories).float(), clicks)
            if index % 20 == 0:
                print(f"batch {index} loss {loss.item():.4f}")
            return loss

        def configure_optimizers(self):
            return optimizer_of(self.model, args.gpu)

    class Tick(lightning.Callback):
        def on_train_batch_end(self, *_):
            clock.tick()

    trainer = lightning.Trainer(
        accelerator="gpu" if args.gpu else "cpu",
        devices=1,
        precision="bf16-mixed",
        max_steps=args.steps,
        max_epochs=-1,
        logger=False,
        callbacks=[Tick()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Job(), batches)


def fit_plain(model, batches, args, clock):
    optimizer = optimizer_of(model, args.gpu)
    for index, (counters, categories, clicks) in enumerate(batches):
        if index == args.steps:
            break
        with torch.autocast(args.device.type, dtype=torch.bfloat16):
            loss = F.binary_cross_entropy_with_logits(model(counters, categories).float(), clicks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.tick()


def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(0)
    fields, rows, size, batch = (26, 20000, 128, 16384) if args.gpu else (4, 50, 8, 32)
    cross, tower = (4, (1024, 512, 256)) if args.gpu else (2, (32, 16))
    with torch.device(args.device):
        model = DCN(fields, rows, size, cross, tower, args.fix)
    batches = Impressions(16, batch, fields, rows, args.device)
    clock = Clock(args.steps)
    (fit_lightning if args.gpu else fit_plain)(model, batches, args, clock)
    clock.report()


if __name__ == "__main__":
    main()
