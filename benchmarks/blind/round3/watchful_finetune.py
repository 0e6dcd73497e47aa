"""ViT-B/16 fine-tuning that evaluates every 10 steps: training runs under bf16 autocast with fused AdamW and is well kept;
the evaluation, written by somebody else, runs six batches of 128 without autocast, in fp32 with TF32 off.

Why: six fp32 forwards take longer than ten training steps. No tensor core is used in more than half of the job.
Trap: nine of ten steps are bf16 and healthy; the accuracy is read with `.item()` and looks like the reason of the pause.
Fixes: eval_autocast: the evaluation under autocast too. eval_tf32: TF32 allowed.
"""

import contextlib

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["compute", "fast-path-off"]]
FIXES = ["eval_autocast", "eval_tf32"]
TRUTH_STEPS = 80
EVERY = 10


class TinyViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch, self.head = nn.Conv2d(3, 32, 8, 8), nn.Linear(32, 100)
        self.body = nn.ModuleList(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, dropout=0.0) for _ in range(2))

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        for layer in self.body:
            x = layer(x)
        return self.head(x.mean(1))


@torch.no_grad()
def evaluate(model, images, labels, context):
    model.eval()
    right = 0
    for batch, truth in zip(images, labels):
        with context():
            right += (model(batch).argmax(-1) == truth).sum().item()
    model.train()
    return right / labels.numel()


def main():
    args = arguments(300, FIXES, cpu_steps=30)
    if args.fix == "eval_tf32":
        torch.backends.cuda.matmul.allow_tf32 = True
    if args.gpu:
        import timm

        model, side, batch, held, parts = timm.create_model("vit_base_patch16_224", num_classes=100), 224, 64, 128, 6
    else:
        model, side, batch, held, parts = TinyViT(), 32, 2, 2, 2
    model.to(args.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    images = torch.randn(4, batch, 3, side, side, device=args.device)
    labels = torch.randint(0, 100, (4, batch), device=args.device)
    val_images = torch.randn(parts, held, 3, side, side, device=args.device)
    val_labels = torch.randint(0, 100, (parts, held), device=args.device)

    def low():
        return torch.autocast(args.device.type, torch.bfloat16)

    clock = Clock(args.steps, EVERY)
    best = 0.0
    for step in range(args.steps):
        with low():
            loss = F.cross_entropy(model(images[step % 4]), labels[step % 4])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % EVERY == 0:
            best = max(best, evaluate(model, val_images, val_labels,
                                      low if args.fix == "eval_autocast" else contextlib.nullcontext))
        clock.tick()
    print(f"best accuracy {best:.3f}")
    clock.report()


if __name__ == "__main__":
    main()
