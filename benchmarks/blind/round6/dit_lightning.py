"""Train a diffusion transformer on image latents with Lightning, its activations checkpointed twice over.

Domain: diffusion, lightning, pure bf16, fused AdamW.
Why: the blocks came with checkpointed sub-layers, and the training script wraps each block in a checkpoint again. For
    one backward pass the attention of a block then runs forward three times and its MLP twice: about a third of the
    step is work done before. The activations saved that way would take some 10 GB of a card with 140.
Trap: the matmuls are well shaped and fast, the GPU is busy, memory is nearly empty; by its kernels alone the step looks
    like one at the roof. Lightning's hooks and the pointwise chains of the modulation are the smaller things.
Fixes: keep-activations (no checkpoint at all).
"""

import lightning.pytorch as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from common import Clock, arguments

WALLS = [["compute", "recompute"]]
FIXES = ["keep-activations"]
TRUTH_STEPS = 140


def saved(enabled, function, *inputs):
    if not enabled:
        return function(*inputs)
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)


class Block(nn.Module):
    def __init__(self, width, heads, checkpointed):
        super().__init__()
        self.heads, self.checkpointed = heads, checkpointed
        self.modulation = nn.Linear(width, 6 * width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def attend(self, x, shift, scale, gate):
        b, t, d = x.shape
        h = F.layer_norm(x, (d,)) * (1 + scale) + shift
        q, k, v = self.qkv(h).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        return x + gate * self.out(h)

    def feed(self, x, shift, scale, gate):
        h = F.layer_norm(x, x.shape[-1:]) * (1 + scale) + shift
        return x + gate * self.down(F.gelu(self.up(h), approximate="tanh"))

    def forward(self, x, condition):
        six = self.modulation(F.silu(condition)).unsqueeze(1).chunk(6, dim=-1)
        x = saved(self.checkpointed, self.attend, x, *six[:3])
        return saved(self.checkpointed, self.feed, x, *six[3:])


class DiT(pl.LightningModule):
    def __init__(self, clock, width, depth, heads, tokens, patch, checkpointed):
        super().__init__()
        self.clock, self.checkpointed = clock, checkpointed
        self.enter = nn.Linear(patch, width)
        self.place = nn.Parameter(0.02 * torch.randn(1, tokens, width))
        self.moment = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.classes = nn.Embedding(1000, width)
        self.blocks = nn.ModuleList(Block(width, heads, checkpointed) for _ in range(depth))
        self.leave = nn.Linear(width, patch)

    def forward(self, noisy, t, label):
        angles = t[:, None].float() * torch.exp(-torch.arange(128, device=t.device) * 0.07)
        waves = torch.cat([angles.cos(), angles.sin()], dim=1).to(noisy.dtype)
        condition = self.moment(waves) + self.classes(label)
        x = self.enter(noisy) + self.place
        for block in self.blocks:
            x = saved(self.checkpointed, block, x, condition)
        return self.leave(F.layer_norm(x, x.shape[-1:]))

    def training_step(self, batch, index):
        latents, label = batch
        noise = torch.randn_like(latents)
        t = torch.rand(latents.shape[0], device=latents.device)
        mixed = torch.lerp(latents, noise, t[:, None, None].to(latents.dtype))
        velocity = self(mixed, 1000 * t, label)
        return F.mse_loss(velocity.float(), (noise - latents).float())

    def on_train_batch_end(self, outputs, batch, index):
        self.clock.tick()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4, weight_decay=0.0, fused=True)


class Latents:
    """An epoch of latents that already lie on the device."""

    def __init__(self, steps, batch, tokens, patch, device, dtype):
        self.steps = steps
        self.pool = [(torch.randn(batch, tokens, patch, device=device, dtype=dtype),
                      torch.randint(1000, (batch,), device=device)) for _ in range(4)]

    def __len__(self):
        return self.steps

    def __iter__(self):
        for step in range(self.steps):
            yield self.pool[step % 4]


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    width, depth, heads, tokens, batch = (1024, 10, 16, 256, 64) if args.gpu else (64, 2, 2, 16, 4)
    patch = 32
    dtype = torch.bfloat16 if args.gpu else torch.float32

    clock = Clock(args.steps)
    with torch.device(args.device):
        model = DiT(clock, width, depth, heads, tokens, patch, checkpointed=args.fix != "keep-activations")
    model = model.to(dtype)
    trainer = pl.Trainer(accelerator="gpu" if args.gpu else "cpu", devices=1, max_steps=args.steps, max_epochs=-1,
                         logger=False, enable_checkpointing=False, enable_progress_bar=False,
                         enable_model_summary=False)
    trainer.fit(model, Latents(args.steps, batch, tokens, patch, args.device, dtype))
    clock.report()


if __name__ == "__main__":
    main()
