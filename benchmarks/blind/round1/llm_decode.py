"""Single-user chat decoding: 16 layers of a 70B-like shape (8192 wide, GQA), bf16, the token step in one CUDA graph,
each token read back and streamed to the user.

Why: at batch 1 a token must read 27 GB of weights; the graph leaves no gaps worth naming, and one read-back of a
single integer a token costs microseconds of several milliseconds. This is the roof of the memory.
No fix; the proof is the bytes a second printed at the end.
"""

import torch
import torch.nn.functional as F
from common import Clock, arguments

WALLS = [["bandwidth", "memory-roof"]]
FIXES = []
TRUTH_STEPS = 800


class Decoder:
    def __init__(self, layers, width, ffn, heads, kv_heads, vocab, window, device):
        self.heads, self.kv_heads, self.dim, self.window = heads, kv_heads, width // heads, window

        def weight(rows, columns):
            return torch.empty(rows, columns, device=device, dtype=torch.bfloat16).normal_(0, 0.02)

        self.layers = [
            {
                "qkv": weight((heads + 2 * kv_heads) * self.dim, width),
                "out": weight(width, heads * self.dim),
                "up": weight(2 * ffn, width),
                "down": weight(width, ffn),
                "k": torch.zeros(1, kv_heads, window, self.dim, device=device, dtype=torch.bfloat16),
                "v": torch.zeros(1, kv_heads, window, self.dim, device=device, dtype=torch.bfloat16),
            }
            for _ in range(layers)
        ]
        self.embed, self.head = weight(vocab, width), weight(vocab, width)
        self.scale = torch.ones(width, device=device, dtype=torch.bfloat16)
        self.token = torch.zeros(1, dtype=torch.long, device=device)
        self.place = torch.zeros(1, dtype=torch.long, device=device)

    def weight_bytes(self):
        names = ("qkv", "out", "up", "down")
        return 2 * (sum(layer[n].numel() for layer in self.layers for n in names) + self.head.numel())

    def step(self):
        x = F.embedding(self.token, self.embed)
        width = x.shape[-1:]
        for layer in self.layers:
            h = F.linear(F.rms_norm(x, width, self.scale), layer["qkv"])
            q, k, v = h.split([self.heads * self.dim, self.kv_heads * self.dim, self.kv_heads * self.dim], -1)
            layer["k"].index_copy_(2, self.place, k.view(1, self.kv_heads, 1, self.dim))
            layer["v"].index_copy_(2, self.place, v.view(1, self.kv_heads, 1, self.dim))
            q = q.view(1, self.kv_heads, self.heads // self.kv_heads, self.dim)
            y = F.scaled_dot_product_attention(q, layer["k"], layer["v"])
            x = x + F.linear(y.reshape(1, -1), layer["out"])
            gate, up = F.linear(F.rms_norm(x, width, self.scale), layer["up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer["down"])
        logits = F.linear(F.rms_norm(x, width, self.scale), self.head)
        self.token.copy_(logits.argmax(-1))
        self.place.add_(1).remainder_(self.window)


@torch.inference_mode()
def main():
    args = arguments(3600, FIXES)
    shape = (16, 8192, 28672, 64, 8, 32000, 256) if args.gpu else (2, 64, 128, 4, 2, 100, 16)
    model = Decoder(*shape, args.device)
    step = model.step
    if args.gpu:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model.step()
        step = graph.replay
    clock = Clock(args.steps)
    said = []
    for _ in range(args.steps):
        step()
        said.append(model.token.item())
        clock.tick()
    print(f"{len(set(said))} different tokens")
    print(f"achieved {model.weight_bytes() / clock.mean_ms / 1e6:.0f} GB/s of weights alone")
    clock.report()


if __name__ == "__main__":
    main()
