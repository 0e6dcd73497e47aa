"""Collects the second-moment matrices that GPTQ needs to quantise a decoder, layer after layer.

A calibration batch of 8 x 1024 tokens runs through the current decoder layer in bfloat16. The input of each
group of linears (qkv, output, gate and up, down) is accumulated into H = 2/n sum x x^T, kept in float32 as
the solver wants it. After 64 batches the matrices would go to the solver and the next layer begins. A step
is one calibration batch.
"""

import torch
from common import Clock, arguments
from torch import nn
from torch.nn import functional as F

WALLS = ["fast-path-off"]
FIXES = {
    "tf32": "torch.set_float32_matmul_precision('high') for the float32 products",
    "bf16-inputs": "multiplies the bfloat16 activations as they are, with a float32 result",
}
TRUTH_STEPS = 70


class Layer(nn.Module):
    def __init__(self, width, ffn, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, c))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Moments:
    """Running H of the inputs of one linear, gathered by a forward pre-hook."""

    def __init__(self, linear, fix):
        size = linear.in_features
        self.h = torch.zeros(size, size, device=linear.weight.device, dtype=torch.float32)
        self.seen, self.fix = 0, fix
        linear.register_forward_pre_hook(self.add)

    def add(self, linear, inputs):
        x = inputs[0].reshape(-1, inputs[0].shape[-1])
        total = self.seen + x.shape[0]
        keep, new = self.seen / total, 2.0 / total
        if self.fix == "bf16-inputs" and x.is_cuda:
            product = torch.mm(x.t(), x, out_dtype=torch.float32)
            self.h.mul_(keep).add_(product, alpha=new)
        else:
            x = x.float()
            self.h.addmm_(x.t(), x, beta=keep, alpha=new)
        self.seen = total

    def reset(self):
        self.h.zero_()
        self.seen = 0


def main():
    args = arguments(270, list(FIXES))
    torch.manual_seed(0)
    if args.fix == "tf32":
        torch.set_float32_matmul_precision("high")
    width, ffn, heads, batch, length = (4096, 14336, 32, 8, 1024) if args.gpu else (64, 160, 4, 2, 32)
    with torch.device(args.device):
        layer = Layer(width, ffn, heads).to(torch.bfloat16).eval()
        pool = [torch.randn(batch, length, width, dtype=torch.bfloat16) for _ in range(4)]
    moments = [Moments(linear, args.fix) for linear in (layer.qkv, layer.out, layer.gate_up, layer.down)]

    clock = Clock(args.steps)
    with torch.inference_mode():
        for step in range(args.steps):
            if step and step % 64 == 0:
                for one in moments:
                    one.reset()
            layer(pool[step % len(pool)])
            clock.tick()
    for one in moments:
        print(f"H {tuple(one.h.shape)} mean diagonal {one.h.diagonal().mean().item():.4f}")
    clock.report()


if __name__ == "__main__":
    main()
