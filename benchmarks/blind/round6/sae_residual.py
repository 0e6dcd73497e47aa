"""Train a sparse autoencoder on the residual stream of a large language model: two wide matmuls and little else.

Domain: interpretability, own functional model, pure bf16, fused Adam.
Why: tokens of width 8192 against a dictionary of 32,768: five products of 8.8 TFLOP each a step, all dims multiples of
    128, in bf16, back to back. ReLU and the update move a few GB beside them. The step stands where
    the tensor cores stand.
Trap: the card lowers its clocks under its power limit, which is normal for it; a ReLU, a squared error and a fused
    update are there to be blamed; a print every 20 steps reads a loss. Nothing gives back as much as a twentieth.
Fixes: none (a smaller dictionary, fewer bits, more cards).
"""

import torch
import torch.nn.functional as F

from common import Clock, arguments

WALLS = [["compute", "at-the-roof"]]
FIXES = []
TRUTH_STEPS = 80


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    width, dictionary, tokens = (8192, 32768, 16384) if args.gpu else (128, 512, 256)
    kind = dict(device=args.device, dtype=torch.bfloat16 if args.gpu else torch.float32)

    encoder = torch.nn.Parameter(torch.randn(dictionary, width, **kind) * width**-0.5)
    decoder = torch.nn.Parameter(encoder.detach().t().contiguous())
    threshold = torch.nn.Parameter(torch.zeros(dictionary, **kind))
    optimizer = torch.optim.Adam([encoder, decoder, threshold], lr=5e-5, fused=True)
    stream = torch.randn(4 * tokens, width, **kind)  # activations of the language model, already on the device

    clock = Clock(args.steps)
    for step in range(args.steps):
        seen = stream[(step % 4) * tokens:(step % 4 + 1) * tokens]
        features = F.relu(F.linear(seen, encoder, threshold))
        rebuilt = F.linear(features, decoder)
        loss = F.mse_loss(rebuilt, seen) + 1e-3 * threshold.mean()  # thresholds are pushed down until few features fire
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1} loss {loss.item():.4f}", flush=True)
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
