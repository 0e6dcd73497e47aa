"""Exports a feature vector for every residue of a protein collection, for the downstream teams.

A BERT-style protein encoder (12 layers of width 1280, Hugging Face, bfloat16) reads 64 proteins of 512
residues at a time; the last hidden states are handed over as float32 arrays in host memory, where the
uploader picks up the last few batches. A step is one batch of proteins.
"""

from collections import deque

import torch
from common import Clock, arguments
from torch import nn

try:
    from transformers import BertConfig, BertModel
except ImportError:
    BertModel = None

WALLS = ["host-sync"]
FIXES = {
    "pinned-ring": "copies into a ring of pinned buffers on a stream of its own, and waits only to reuse one"
}
TRUTH_STEPS = 100

RESIDUES = 33


class PlainEncoder(nn.Module):
    """Stands in where transformers is not installed."""

    def __init__(self, width, depth, heads):
        super().__init__()
        self.embed = nn.Embedding(RESIDUES, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)

    def forward(self, ids):
        return self.layers(self.embed(ids))


class HubEncoder(nn.Module):
    def __init__(self, width, depth, heads, length):
        super().__init__()
        config = BertConfig(
            vocab_size=RESIDUES,
            hidden_size=width,
            num_hidden_layers=depth,
            num_attention_heads=heads,
            intermediate_size=4 * width,
            max_position_embeddings=length,
            attn_implementation="sdpa",
        )
        self.bert = BertModel(config, add_pooling_layer=False)

    def forward(self, ids):
        return self.bert(input_ids=ids).last_hidden_state


class Handover:
    """The last batches, as arrays in host memory."""

    def __init__(self, kept):
        self.arrays = deque(maxlen=kept)

    def put(self, hidden):
        self.arrays.append(hidden.float().cpu().numpy())

    def finish(self):
        return self.arrays[-1]


class PinnedHandover:
    """The same through a ring of pinned buffers: a copy runs beside the next batch."""

    def __init__(self, kept, shape):
        self.buffers = [torch.empty(shape, pin_memory=True) for _ in range(kept + 1)]
        self.copied = [torch.cuda.Event() for _ in self.buffers]
        self.stream = torch.cuda.Stream()
        self.count = 0

    def put(self, hidden):
        features = hidden.float()
        slot = self.count % len(self.buffers)
        self.copied[slot].synchronize()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.buffers[slot].copy_(features, non_blocking=True)
            self.copied[slot].record()
        features.record_stream(self.stream)
        self.count += 1

    def finish(self):
        slot = (self.count - 1) % len(self.buffers)
        self.copied[slot].synchronize()
        return self.buffers[slot].numpy()


def main():
    args = arguments(400, list(FIXES))
    torch.manual_seed(0)
    batch, length, width, depth, heads = (64, 512, 1280, 12, 20) if args.gpu else (4, 32, 64, 2, 4)
    with torch.device(args.device):
        if BertModel is None:
            model = PlainEncoder(width, depth, heads)
        else:
            model = HubEncoder(width, depth, heads, length)
    model = model.to(args.device, torch.bfloat16).eval()
    proteins = torch.randint(RESIDUES, (16, batch, length), device=args.device)
    if args.fix == "pinned-ring" and args.gpu:
        handover = PinnedHandover(4, (batch, length, width))
    else:
        handover = Handover(4)

    clock = Clock(args.steps)
    with torch.inference_mode():
        for step in range(args.steps):
            handover.put(model(proteins[step % len(proteins)]))
            clock.tick()
    last = handover.finish()
    print(f"features {last.shape} {last.dtype} mean square {(last[0] ** 2).mean():.4f}")
    clock.report()


if __name__ == "__main__":
    main()
