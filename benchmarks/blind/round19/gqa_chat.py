"""Decode loop of a chat server: many resumed conversations answered together, one token each per step.

The key/value caches of the conversations are restored into one preallocated buffer before decoding begins;
finished tokens are handed to the streaming front end every `HANDOVER` steps.
"""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

FIXES = ["grouped", "native-gqa"]
STEPS = 36
HANDOVER = 16


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def repeat_kv(x, times):
    """(batch, kv_heads, length, dim) -> (batch, kv_heads * times, length, dim)"""
    b, heads, length, dim = x.shape
    return x[:, :, None].expand(b, heads, times, length, dim).reshape(b, heads * times, length, dim)


class Attention(nn.Module):
    def __init__(self, dim, heads, kv_heads, fix):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim, self.fix = heads, kv_heads, dim // heads, fix
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wkv = nn.Linear(dim, 2 * kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x, cache, at, cos, sin):
        b, group = x.shape[0], self.heads // self.kv_heads
        q = rotate(self.wq(x).view(b, self.heads, 1, self.head_dim), cos, sin)
        k, v = self.wkv(x).view(b, 2, self.kv_heads, 1, self.head_dim).unbind(1)
        cache[0][:, :, at : at + 1] = rotate(k, cos, sin)
        cache[1][:, :, at : at + 1] = v
        keys, values = cache[0][:, :, : at + 1], cache[1][:, :, : at + 1]
        if self.fix == "grouped":
            q = q.view(b, self.kv_heads, group, self.head_dim)
            y = F.scaled_dot_product_attention(q, keys, values)
        elif self.fix == "native-gqa":
            y = F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
        else:
            y = F.scaled_dot_product_attention(q, repeat_kv(keys, group), repeat_kv(values, group))
        return self.wo(y.reshape(b, 1, -1))


class Layer(nn.Module):
    def __init__(self, c, fix):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(c["dim"], eps=1e-5), nn.RMSNorm(c["dim"], eps=1e-5)
        self.attention = Attention(c["dim"], c["heads"], c["kv_heads"], fix)
        self.gate_up = nn.Linear(c["dim"], 2 * c["ffn"], bias=False)
        self.down = nn.Linear(c["ffn"], c["dim"], bias=False)

    def forward(self, x, cache, at, cos, sin):
        x = x + self.attention(self.norm1(x), cache, at, cos, sin)
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class ChatModel(nn.Module):
    def __init__(self, c, fix):
        super().__init__()
        self.embed = nn.Embedding(c["vocab"], c["dim"])
        self.layers = nn.ModuleList(Layer(c, fix) for _ in range(c["layers"]))
        self.norm = nn.RMSNorm(c["dim"], eps=1e-5)
        self.head = nn.Linear(c["dim"], c["vocab"], bias=False)
        half = torch.arange(0, c["dim"] // c["heads"], 2).float() / (c["dim"] // c["heads"])
        angle = torch.arange(c["room"]).float()[:, None] / 500000**half
        self.register_buffer("cos", torch.cat([angle, angle], -1).cos().to(self.embed.weight.dtype))
        self.register_buffer("sin", torch.cat([angle, angle], -1).sin().to(self.embed.weight.dtype))

    def forward(self, tokens, caches, at):
        x = self.embed(tokens)[:, None]
        cos, sin = self.cos[at], self.sin[at]
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache, at, cos, sin)
        return self.head(self.norm(x))[:, 0]


@torch.inference_mode()
def main():
    args = arguments(STEPS, FIXES)
    c = dict(vocab=331, dim=64, layers=2, heads=8, kv_heads=2, ffn=96, users=3, room=40, history=24)
    if args.gpu:
        c = dict(vocab=128256, dim=4096, layers=12, heads=32, kv_heads=8, ffn=14336, users=48, room=8192, history=8000)
    dtype = torch.bfloat16 if args.gpu else torch.float32
    torch.manual_seed(2)
    with torch.device(args.device):
        torch.set_default_dtype(dtype)
        model = ChatModel(c, args.fix).eval()
        torch.set_default_dtype(torch.float32)
        shape = (2, c["users"], c["kv_heads"], c["room"], c["dim"] // c["heads"])
        caches = [torch.randn(shape, dtype=dtype) for _ in range(c["layers"])]
        tokens = torch.randint(c["vocab"], (c["users"],))

    clock = Clock(args.steps)
    pending, delivered = [], []
    for step in range(args.steps):
        logits = model(tokens, caches, c["history"] + step % (c["room"] - c["history"]))
        tokens = logits.argmax(-1)
        pending.append(tokens)
        if len(pending) == HANDOVER:
            delivered += torch.stack(pending, 1).tolist()
            pending.clear()
        clock.tick()
    clock.report()
    print(f"top score {logits.float().amax(-1).mean().item():.5f}")


if __name__ == "__main__":
    main()
