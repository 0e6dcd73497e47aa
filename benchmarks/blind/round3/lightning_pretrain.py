"""A wide language model (two layers of 8192, MLP 32768) under Lightning: bf16-true, fused AdamW, `self.log` every step,
a CSV logger, two callbacks, 8 x 1024 tokens.

Why: the matmuls are large and run at the device's rate; the fused optimizer reads and writes only what it must. All that
Lightning does in between fits behind the queue. The compute roof.
Trap: lots of visible Python, logging every step, a framework everybody suspects.
No fix; the proof is the FLOP/s printed at the end.
"""

import tempfile

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn
from torch.utils.data import DataLoader, Dataset

WALLS = [["compute", "at-the-roof"]]
FIXES = []
TRUTH_STEPS = 45

try:
    import lightning as L
except ImportError:
    L = None
Module = L.LightningModule if L else nn.Module


class Tokens(Dataset):
    def __init__(self, count, length, vocab):
        self.count, self.corpus, self.length = count, torch.randint(0, vocab, (200_000,)), length

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        start = (i * 7919) % (len(self.corpus) - self.length - 1)
        return self.corpus[start : start + self.length + 1]


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.n1(x)).chunk(3, -1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class WideLM(Module):
    def __init__(self, vocab, d, heads, layers):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
        self.shown = {}

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def training_step(self, batch, index):
        loss = F.cross_entropy(self(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        if L:
            self.log("loss", loss, on_step=True, on_epoch=False)
            self.log("tokens", float(batch.numel()), on_step=True, on_epoch=False)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-5, fused=True)


def main():
    args = arguments(220, FIXES)
    vocab, d, heads, layers, batch, length = (8192, 8192, 64, 2, 8, 1024) if args.gpu else (64, 64, 4, 2, 2, 16)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(args.device):
        model = WideLM(vocab, d, heads, layers)
    torch.set_default_dtype(torch.float32)
    loader = DataLoader(Tokens(args.steps * batch, length, vocab), batch, num_workers=2 if args.gpu else 0, pin_memory=args.gpu)
    clock = Clock(args.steps)
    if L is None:
        optimizer = model.configure_optimizers()
        for index, tokens in enumerate(loader):
            loss = model.training_step(tokens.to(args.device), index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.tick()
    else:
        from lightning.pytorch.callbacks import Callback
        from lightning.pytorch.loggers import CSVLogger

        class Ticker(Callback):
            def on_train_batch_end(self, *_):
                clock.tick()

        class GradientScale(Callback):
            def on_before_optimizer_step(self, trainer, module, optimizer):
                if trainer.global_step % 50 == 0:
                    module.shown["head"] = module.head.weight.grad.norm()

        trainer = L.Trainer(max_steps=args.steps, max_epochs=1, accelerator="gpu" if args.gpu else "cpu", devices=1,
                            precision="bf16-true", logger=CSVLogger(tempfile.mkdtemp(prefix="lightning_pretrain_")),
                            log_every_n_steps=10, callbacks=[GradientScale(), Ticker()], enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False)
        trainer.fit(model, loader)
    weights = sum(p.numel() for b in model.blocks for p in b.parameters() if p.ndim == 2) + model.head.weight.numel()
    flops = 6 * weights * batch * length + layers * 6 * batch * length * length * d
    print(f"achieved {flops / clock.mean_ms / 1e9:.0f} TFLOP/s")
    clock.report()


if __name__ == "__main__":
    main()
