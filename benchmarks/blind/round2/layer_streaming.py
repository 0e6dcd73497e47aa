"""Batch scoring with a model "too large for the card": layers stay in host memory and are sent to the GPU one after the
other, used, and dropped (what a device map with CPU offload does). 16 layers of 100 MB, 16 x 512 tokens.

Why: 1.6 GB of pageable memory is copied a call, one layer at a time, in front of the layer that needs it; the matmuls
take a tenth of it.
Trap: the copied thing is the model, not the data; no DataLoader in sight.
Fixes: pinned_prefetch: pinned weights, the next layer copied on a side stream. resident: the layers stay on the card.
"""

import torch
import torch.nn.functional as F
from common import Clock, arguments

WALLS = [["data", "copy-exposed"]]
FIXES = ["pinned_prefetch", "resident"]
TRUTH_STEPS = 24
NAMES = ("qkv", "proj", "up", "down")


def make_layer(width):
    shapes = {"qkv": (3 * width, width), "proj": (width, width), "up": (4 * width, width), "down": (width, 4 * width)}
    return {name: (torch.randn(shape) * 0.02).bfloat16() for name, shape in shapes.items()}


def forward_layer(x, w, heads):
    b, t, d = x.shape
    q, k, v = F.linear(F.layer_norm(x, (d,)), w["qkv"]).view(b, t, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
    x = x + F.linear(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d), w["proj"])
    return x + F.linear(F.gelu(F.linear(F.layer_norm(x, (d,)), w["up"])), w["down"])


class Plain:
    def __init__(self, layers, device):
        self.layers, self.device = layers, device

    def __iter__(self):
        for layer in self.layers:
            yield {name: tensor.to(self.device) for name, tensor in layer.items()}


class Resident(Plain):
    def __init__(self, layers, device):
        super().__init__([{n: t.to(device) for n, t in layer.items()} for layer in layers], device)


class Prefetching(Plain):
    def __init__(self, layers, device):
        super().__init__([{n: t.pin_memory() for n, t in layer.items()} for layer in layers], device)
        self.stream = torch.cuda.Stream()
        self.slots = [{n: torch.empty_like(t, device=device) for n, t in layers[0].items()} for _ in range(2)]
        self.filled, self.used = ([torch.cuda.Event(), torch.cuda.Event()] for _ in range(2))

    def fetch(self, i):
        slot = i % 2
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(self.used[slot])
            for name, tensor in self.layers[i % len(self.layers)].items():
                self.slots[slot][name].copy_(tensor, non_blocking=True)
            self.filled[slot].record()

    def __iter__(self):
        self.fetch(0)
        for i in range(len(self.layers)):
            if i + 1 < len(self.layers):
                self.fetch(i + 1)
            torch.cuda.current_stream().wait_event(self.filled[i % 2])
            yield self.slots[i % 2]
            self.used[i % 2].record()


@torch.inference_mode()
def main():
    args = arguments(130, FIXES)
    width, heads, count, batch, length, vocab = (2048, 16, 16, 16, 512, 32000) if args.gpu else (64, 4, 3, 2, 16, 100)
    first = make_layer(width)
    layers = [first] + [{n: t.clone() for n, t in first.items()} for _ in range(count - 1)]
    kind = {None: Plain, "resident": Resident, "pinned_prefetch": Prefetching if args.gpu else Plain}[args.fix]
    weights = kind(layers, args.device)
    embed = (torch.randn(vocab, width, device=args.device) * 0.02).bfloat16()
    texts = torch.randint(0, vocab, (8, batch, length), device=args.device)
    clock = Clock(args.steps)
    totals = []
    for call in range(args.steps):
        ids = texts[call % 8]
        x = F.embedding(ids, embed)
        for layer in weights:
            x = forward_layer(x, layer, heads)
        logits = F.linear(x[:, -1], embed).float()
        totals.append(logits.log_softmax(-1).gather(1, ids[:, :1]).mean())
        clock.tick()
    print("mean score", torch.stack(totals).mean().item())
    clock.report()


if __name__ == "__main__":
    main()
