"""ViT-B/16 fine-tuning (timm, 96 images, bf16 autocast, fused AdamW) with a guard from a past debugging session left in:
every module's output and every gradient is checked for inf and nan, and the check is an `if`.

Why: each `if` reads a boolean from the device: hundreds of times a step the host waits for the queue to drain and then
fills it again. The checks themselves are cheap.
Fix: no_guard: neither hooks nor the loop over gradients.
"""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["overhead", "host-sync"]]
FIXES = ["no_guard"]
TRUTH_STEPS = 80


class TinyViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 32, 8, 8)
        self.body = nn.ModuleList(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, dropout=0.0) for _ in range(2))
        self.head = nn.Linear(32, 100)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        for layer in self.body:
            x = layer(x)
        return self.head(x.mean(1))


def guard(name):
    def check(module, inputs, output):
        if torch.is_tensor(output) and not torch.isfinite(output).all():
            raise FloatingPointError(f"{name} gave inf or nan")

    return check


def main():
    args = arguments(380, FIXES)
    if args.gpu:
        import timm

        model, side, batch = timm.create_model("vit_base_patch16_224", num_classes=100), 224, 96
    else:
        model, side, batch = TinyViT(), 32, 2
    model.to(args.device).train()
    if args.fix != "no_guard":
        for name, module in model.named_modules():
            if not list(module.children()) and not isinstance(module, (nn.Identity, nn.Dropout)):
                module.register_forward_hook(guard(name))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    images = torch.randn(4, batch, 3, side, side, device=args.device)
    labels = torch.randint(0, 100, (4, batch), device=args.device)
    clock = Clock(args.steps)
    for step in range(args.steps):
        with torch.autocast(args.device.type, torch.bfloat16):
            loss = F.cross_entropy(model(images[step % 4]), labels[step % 4])
        optimizer.zero_grad()
        loss.backward()
        if args.fix != "no_guard":
            for name, parameter in model.named_parameters():
                if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
                    raise FloatingPointError(f"gradient of {name}")
        optimizer.step()
        clock.tick()
    print("final loss", loss.item())
    clock.report()


if __name__ == "__main__":
    main()
