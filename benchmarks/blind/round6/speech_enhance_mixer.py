"""Clean noisy speech: a mixer over the three axes of a spectrogram (frequency, time, channel), batch inference.

Domain: speech (enhancement), own functional code, bf16, inference.
Why: to mix along frequency or time the code moves that axis to the end, makes the tensor contiguous, applies a linear
    layer, and moves everything back. Each move is a transposing copy of 268 MB with strided reads, two a mix, and the
    matmul between them (256 x 256) is cheaper than either.
Trap: the copies are `aten::copy_` kernels named like any elementwise kernel; GELU and the residual additions are real
    pointwise work but half of it; the matmuls are narrow and look slow.
Fixes: mix-in-place (multiply from the left with a batched matmul on views: no axis moves, the same numbers).
"""

import torch
import torch.nn.functional as F

from common import Clock, arguments

WALLS = [["bandwidth", "layout-copies"]]
FIXES = ["mix-in-place"]
TRUTH_STEPS = 200


def mix_moved(x, axis, weight):
    """Bring `axis` last, mix it, bring it back."""
    moved = x.movedim(axis, -1).contiguous()
    mixed = F.gelu(F.linear(moved, weight))
    return x + mixed.movedim(-1, axis).contiguous()


def mix_in_place(x, axis, weight):
    """The same from the left: the axes before it are the batch, those after it are columns."""
    before = 1
    for size in x.shape[:axis]:
        before *= size
    rows = x.view(before, x.shape[axis], -1)
    mixed = F.gelu(torch.bmm(weight.expand(before, -1, -1), rows))
    return x + mixed.view(x.shape)


def enhance(noisy, blocks, enter, leave, mix):
    x = F.linear(noisy, enter)
    for by_frequency, by_time, by_channel in blocks:
        x = F.layer_norm(x, x.shape[-1:])
        x = mix(x, 1, by_frequency)
        x = mix(x, 2, by_time)
        x = x + F.gelu(F.linear(x, by_channel))
    return torch.sigmoid(F.linear(x, leave)) * noisy


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    batch, bands, frames, channels, depth = (16, 256, 256, 128, 8) if args.gpu else (2, 32, 32, 16, 2)
    kind = dict(device=args.device, dtype=torch.bfloat16 if args.gpu else torch.float32)

    def weight(outputs, inputs):
        return torch.randn(outputs, inputs, **kind) * inputs**-0.5

    blocks = [(weight(bands, bands), weight(frames, frames), weight(channels, channels)) for _ in range(depth)]
    enter, leave = weight(channels, 8), weight(8, channels)
    recordings = [torch.randn(batch, bands, frames, 8, **kind) for _ in range(4)]
    mix = mix_in_place if args.fix == "mix-in-place" else mix_moved

    loudness = torch.zeros((), device=args.device)
    clock = Clock(args.steps)
    with torch.inference_mode():
        for step in range(args.steps):
            clean = enhance(recordings[step % 4], blocks, enter, leave, mix)
            loudness.lerp_(clean.float().square().mean(), 0.1)
            if step % 50 == 49:
                print(f"batch {step + 1} loudness {loudness.item():.4f}", flush=True)
            clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
