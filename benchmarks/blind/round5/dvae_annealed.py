"""A discrete autoencoder for images with an annealed temperature, compiled.

Domain: vision (image tokeniser for a generator), training, torch.compile, bf16 autocast.
Why: the temperature of the Gumbel softmax falls every 25 steps and is computed in `forward` from an integer of the module.
     A compiled graph holds such an integer as a constant, so each fall compiles the model anew: seconds, against steps of
     a few milliseconds. The limit on recompilations was raised to silence its warning.
Trap: 24 of 25 steps are fast and hold nothing; the 25th has no unusual kernel, only a host that is busy.
Fixes: temperature-tensor (the temperature is a buffer that is filled: one graph for all of them).
"""

import torch
from torch import nn
from torch.nn import functional as F

from common import Clock, arguments

WALLS = [["overhead", "recompilation"]]
FIXES = ["temperature-tensor"]
TRUTH_STEPS = 100

EVERY = 25


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 1))

    def forward(self, x):
        return x + self.body(x)


class DiscreteAutoencoder(nn.Module):
    def __init__(self, width, codes, as_tensor):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, width, 4, 4), Residual(width), Residual(width), nn.Conv2d(width, codes, 1))
        self.codebook = nn.Parameter(torch.randn(codes, width) * 0.02)
        self.decoder = nn.Sequential(Residual(width), Residual(width), nn.ConvTranspose2d(width, 3, 4, 4))
        self.as_tensor = as_tensor
        self.falls = 0
        self.register_buffer("temperature", torch.ones(()))

    def cool(self):
        self.falls += 1
        if self.as_tensor:
            self.temperature.fill_(0.3 + 0.7 * 0.995**self.falls)

    def forward(self, image):
        temperature = self.temperature if self.as_tensor else 0.3 + 0.7 * 0.995**self.falls
        logits = self.encoder(image).float()
        noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)))
        soft = torch.softmax((logits + noise) / temperature, dim=1)
        picked = torch.einsum("bkhw,kc->bchw", soft, self.codebook)
        again = self.decoder(picked)
        prior = (F.softmax(logits, 1) * F.log_softmax(logits, 1)).sum(1).mean()
        return F.mse_loss(again.float(), image) + 1e-4 * prior


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 1 << 16
    torch._dynamo.config.accumulated_recompile_limit = 1 << 20
    every = EVERY if args.gpu else 3
    width, codes, batch, side = (192, 1024, 24, 128) if args.gpu else (8, 16, 2, 16)
    model = DiscreteAutoencoder(width, codes, args.fix == "temperature-tensor").to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    compiled = torch.compile(model, dynamic=False)
    images = torch.rand(16, batch, 3, side, side, device=args.device)

    clock = Clock(args.steps, period=every)
    for step in range(args.steps):
        with torch.autocast(args.device.type, torch.bfloat16):
            loss = compiled(images[step % 16])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % every == every - 1:
            model.cool()
        clock.tick()
    print(f"loss {loss.item():.4f}", flush=True)
    clock.report()


if __name__ == "__main__":
    main()
