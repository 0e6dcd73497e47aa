"""Serves a chat model with gated linear recurrences, whose weights are stored as int8 with a scale a row.

32 conversations decode together, one token each a step. There is no growing cache: a layer's state is one
vector a conversation. The quantised linear turns its weight into bfloat16 and multiplies, then applies the
row scales. A step is one token of every conversation (greedy).
"""

import torch
from common import Clock, arguments
from torch import nn
from torch.nn import functional as F

WALLS = ["dtype-casts"]
FIXES = {"unpack-once": "turns the int8 weights into bfloat16 when the model is loaded, not at every call"}
TRUTH_STEPS = 1000


class Int8Linear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8))
        scale = torch.rand(outputs).add(0.5) / (73 * inputs**0.5)
        self.register_buffer("scale", scale.to(torch.bfloat16))

    def unpack(self):
        self.weight = self.weight.to(torch.bfloat16)

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype)) * self.scale


class Layer(nn.Module):
    def __init__(self, width, ffn):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.gate_value = Int8Linear(width, 2 * width)
        self.out = Int8Linear(width, width)
        self.up, self.down = Int8Linear(width, ffn), Int8Linear(ffn, width)

    def forward(self, x, state):
        gate, value = self.gate_value(self.norm1(x)).chunk(2, dim=-1)
        state.lerp_(value, torch.sigmoid(gate))
        x = x + self.out(state)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ChatModel(nn.Module):
    def __init__(self, vocabulary, width, ffn, depth):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, ffn) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids, states):
        x = self.tokens(ids)
        for layer, state in zip(self.layers, states, strict=True):
            x = layer(x, state)
        return self.head(self.norm(x))


def main():
    args = arguments(4000, list(FIXES))
    torch.manual_seed(0)
    vocabulary, width, ffn, depth, chats = (32000, 8192, 32768, 6, 32) if args.gpu else (128, 64, 256, 2, 4)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(args.device):
        model = ChatModel(vocabulary, width, ffn, depth).eval()
        states = [torch.zeros(chats, width) for _ in range(depth)]
        ids = torch.randint(vocabulary, (chats,))
        written = torch.zeros(args.steps, chats, dtype=torch.long)
    torch.set_default_dtype(torch.float32)
    if args.fix == "unpack-once":
        for module in model.modules():
            if isinstance(module, Int8Linear):
                module.unpack()

    clock = Clock(args.steps)
    with torch.inference_mode():
        for step in range(args.steps):
            if step % 512 == 0:  # the conversations end, new ones take their places
                for state in states:
                    state.zero_()
            ids = model(ids, states).argmax(dim=-1)
            written[step] = ids
            clock.tick()
    print("first conversation:", written[:8, 0].tolist())
    clock.report()


if __name__ == "__main__":
    main()
