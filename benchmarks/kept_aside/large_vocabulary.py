"""A two-layer language model with a vocabulary of 128k; the logits are turned to fp32 before the loss, as
many trainers do.

Truth: the device's memory traffic on the logits: 8192 x 128k numbers, cast up, log-softmaxed, and the
same back again, more than a third of the step and more than the head's three matmuls beside it. AdamW's
passes over 290 million parameters come third.

Fixes: no_upcast: the loss takes bf16 logits. compile_loss: cast and cross-entropy under torch.compile.
fused: AdamW(fused=True).
"""

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["bandwidth", "unfused-pointwise"], ["bandwidth", "dtype-casts"], ["compute", "at-the-roof"]]
ALSO = [["bandwidth", "unfused-optimizer"]]
FIXES = ["no_upcast", "compile_loss", "fused"]
COMPILED = ["compile_loss"]


class Model(nn.Module):
    def __init__(self, vocabulary: int, width: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, "gelu", batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embed(ids), mask=mask, is_causal=True))


def upcast_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.float(), targets)


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, length, width, depth = (16, 512, 1024, 2) if size == "gpu" else (2, 8, 64, 1)
    vocabulary = 131072 if size == "gpu" else 256
    with torch.device(device):
        model = Model(vocabulary, width, depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fix == "fused" or None)
    ids = torch.randint(vocabulary, (batch, length + 1), device=device)
    mask = nn.Transformer.generate_square_subsequent_mask(length, device=device)
    loss_of = {
        "no_upcast": nn.functional.cross_entropy,
        "compile_loss": torch.compile(upcast_loss) if fix == "compile_loss" else upcast_loss,
    }.get(fix or "", upcast_loss)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16):
            logits = model(ids[:, :-1], mask)
        logits, targets = logits.flatten(0, 1), ids[:, 1:].flatten()
        loss = loss_of(logits, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main(make)
