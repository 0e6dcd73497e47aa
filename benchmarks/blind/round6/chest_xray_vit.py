"""Fourteen findings on chest X-rays of 512 x 512: a timm ViT whose fused attention was switched off for heat maps.

Domain: vision (medical), timm, bf16 autocast, fused AdamW.
Why: `set_fused_attn(False)` was needed once to look at attention maps and stayed. Each layer now writes a score matrix
    of 16 x 12 x 1024 x 1024, turns it into fp32 for the softmax, and back into bf16: some 12 GB of traffic a layer and
    step, where a fused kernel would keep the scores on the chip.
Trap: part of the traffic wears the clothes of casts and of a softmax kernel that runs near the memory's speed, and the
    batched matmuls on the scores look like slow matmuls: one cause, the attention that is written out.
Fixes: fused-attention (timm's own default: scaled_dot_product_attention).
"""

import torch
import torch.nn.functional as F
from timm.layers import set_fused_attn
from timm.models.vision_transformer import VisionTransformer

from common import Clock, arguments

WALLS = [["bandwidth", "unfused-attention"]]
FIXES = ["fused-attention"]
TRUTH_STEPS = 150


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    side, width, depth, heads, batch = (512, 768, 8, 12, 16) if args.gpu else (64, 64, 2, 2, 4)

    set_fused_attn(args.fix == "fused-attention")  # off: the maps are wanted for the heat maps of the report
    with torch.device(args.device):
        model = VisionTransformer(img_size=side, patch_size=16, embed_dim=width, depth=depth, num_heads=heads,
                                  num_classes=14, class_token=False, global_pool="avg")
        films = [torch.randn(batch, 3, side, side) for _ in range(4)]
        findings = [(torch.rand(batch, 14) < 0.1).float() for _ in range(4)]
    model = model.to(args.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05, fused=True)

    clock = Clock(args.steps)
    for step in range(args.steps):
        with torch.autocast(args.device.type, dtype=torch.bfloat16, enabled=args.gpu):
            logits = model(films[step % 4])
        loss = F.binary_cross_entropy_with_logits(logits.float(), findings[step % 4])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            print(f"step {step + 1} loss {loss.item():.4f}", flush=True)
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
