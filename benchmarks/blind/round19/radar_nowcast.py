"""Trains a wide transformer that continues radar sequences: space-time patches in, the next frames' patches out."""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

FIXES = []
STEPS = 24


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, width)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Nowcaster(nn.Module):
    def __init__(self, patch, width, heads, depth, tokens):
        super().__init__()
        self.embed = nn.Linear(patch, width)
        self.place = nn.Parameter(torch.randn(tokens, width) * 0.02)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.predict = nn.Linear(width, patch)

    def forward(self, patches):
        x = self.embed(patches)
        return self.predict(self.norm(self.blocks(x + self.place.to(x.dtype))))


def storms(sequences, frames, size, generator, device):
    """Bytes of drifting smooth rain fields."""
    coarse = torch.rand(sequences, 1, size // 16, size // 16, generator=generator, device=device)
    rain = F.interpolate(coarse, size=(size, size), mode="bicubic")[:, 0].clamp(0.4, 1) - 0.4
    moved = [torch.roll(rain, (3 * i, 5 * i), (1, 2)) for i in range(frames)]
    return (torch.stack(moved, 1) * 420).to(torch.uint8)


def to_patches(frames, side):
    """(batch, time, height, width) -> (batch, tokens, time * side * side)"""
    b, t, h, w = frames.shape
    x = frames.view(b, t, h // side, side, w // side, side).permute(0, 2, 4, 1, 3, 5)
    return x.reshape(b, (h // side) * (w // side), t * side * side)


def main():
    args = arguments(STEPS, FIXES)
    torch.manual_seed(14)
    torch.set_float32_matmul_precision("high")
    sequences, size, side, batch, width, heads, depth, past, log_every = (64, 512, 16, 16, 4096, 32, 3, 4, 50)
    if not args.gpu:
        sequences, size, side, batch, width, heads, depth, past, log_every = (6, 32, 8, 2, 32, 2, 2, 2, 3)
    generator = torch.Generator(args.device).manual_seed(14)
    radar = storms(sequences, 2 * past, size, generator, args.device)
    model = Nowcaster(past * side * side, width, heads, depth, (size // side) ** 2).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=args.gpu)
    running = torch.zeros((), device=args.device)

    clock = Clock(args.steps)
    for step in range(1, args.steps + 1):
        pick = torch.randint(sequences, (batch,), generator=generator, device=args.device)
        patches = to_patches(radar[pick].to(torch.bfloat16 if args.gpu else torch.float32) / 255, side)
        before, after = patches.chunk(2, -1)
        with torch.autocast(args.device.type, torch.bfloat16, enabled=args.gpu):
            predicted = model(before)
        loss = F.mse_loss(predicted.float(), after.float())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        running.lerp_(loss.detach(), 0.05)
        if step % log_every == 0:
            print(f"step {step} loss {running.item():.6f}")
        clock.tick()
    clock.report()
    print(f"loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
