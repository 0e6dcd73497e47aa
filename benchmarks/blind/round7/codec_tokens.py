"""Trains a small neural audio codec with a residual vector quantiser.

Two-second clips at 16 kHz are cut into frames of 125 samples, encoded to 256 values a frame, quantised by
four codebooks of 2048 entries one after the other (straight-through gradient, moving-average codebooks) and
decoded. The distances to the codebook are computed pair by pair, not by the expanded square, because nearby
codes came out as ties with the latter in an earlier version. A step is a batch of 32 clips.
"""

import torch
from common import Clock, arguments
from torch import nn
from torch.nn import functional as F

WALLS = ["slow-kernels"]
FIXES = {"matmul": "lets torch.cdist use its matrix-product form"}
TRUTH_STEPS = 80


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.wide = nn.Conv1d(width, width, 5, padding=2)
        self.back = nn.Conv1d(width, width, 1)

    def forward(self, x):
        return x + self.back(F.silu(self.wide(x)))


class Quantiser(nn.Module):
    def __init__(self, books, entries, dim, mode):
        super().__init__()
        self.register_buffer("codes", torch.randn(books, entries, dim) * 0.5)
        self.mode = mode

    def forward(self, x):
        """x: [frames, dim] -> quantised x and the commitment loss."""
        residual, total = x.float(), 0
        with torch.no_grad():
            for book in self.codes:
                distance = torch.cdist(residual, book, p=2, compute_mode=self.mode)
                chosen = distance.argmin(dim=1)
                picked = book.index_select(0, chosen)
                if self.training:
                    count = torch.zeros_like(book[:, 0]).index_add_(
                        0, chosen, torch.ones_like(residual[:, 0])
                    )
                    sums = torch.zeros_like(book).index_add_(0, chosen, residual)
                    target = torch.where(count[:, None] > 0, sums / count.clamp(min=1)[:, None], book)
                    book.lerp_(target, 0.01)
                residual = residual - picked
                total = total + picked
        commitment = F.mse_loss(x.float(), total)
        return x + (total.to(x.dtype) - x).detach(), commitment


class Codec(nn.Module):
    def __init__(self, frame, width, dim, depth, books, entries, mode):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv1d(1, width, frame, stride=frame),
            *[Residual(width) for _ in range(depth)],
            nn.Conv1d(width, dim, 1),
        )
        self.quantise = Quantiser(books, entries, dim, mode)
        self.decode = nn.Sequential(
            nn.Conv1d(dim, width, 1),
            *[Residual(width) for _ in range(depth)],
            nn.ConvTranspose1d(width, 1, frame, frame),
        )

    def forward(self, wave):
        z = self.encode(wave)
        b, d, t = z.shape
        q, commitment = self.quantise(z.transpose(1, 2).reshape(b * t, d))
        return self.decode(q.view(b, t, d).transpose(1, 2)), commitment


def main():
    args = arguments(300, list(FIXES), cpu_steps=4)
    torch.manual_seed(0)
    batch, samples, frame, width, dim, depth, books, entries = (
        (32, 32000, 125, 512, 256, 3, 4, 2048) if args.gpu else (2, 2000, 125, 16, 8, 1, 2, 32)
    )
    mode = "use_mm_for_euclid_dist" if args.fix == "matmul" else "donot_use_mm_for_euclid_dist"
    codec = Codec(frame, width, dim, depth, books, entries, mode).to(args.device)
    optimizer = torch.optim.AdamW(codec.parameters(), lr=3e-4, fused=True)
    time = torch.arange(samples, device=args.device) / 16000

    clock = Clock(args.steps)
    for _ in range(args.steps):
        pitch = 80 + 400 * torch.rand(batch, 1, 1, device=args.device)
        wave = torch.sin(2 * torch.pi * pitch * time)
        wave = wave + 0.1 * torch.randn_like(wave)
        with torch.autocast(args.device.type, torch.bfloat16):
            out, commitment = codec(wave)
            loss = F.l1_loss(out.float(), wave) + 0.25 * commitment
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        clock.tick()
    print(f"loss {loss.item():.4f}")
    clock.report()


if __name__ == "__main__":
    main()
