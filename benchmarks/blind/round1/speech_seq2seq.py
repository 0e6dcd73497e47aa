"""Fine-tuning a Whisper-small on transcripts: 8 clips of 30 s, 64 target tokens, AdamW, loss printed every step.

Why: everything runs in fp32 with TF32 off (torch's default), so the matmuls never see a tensor core.
Trap: `loss.item()` every step looks bad and costs nothing, since the device is the slower side by far.
Fixes: tf32: `set_float32_matmul_precision("high")`. bf16: autocast.
"""

import contextlib

import torch
from common import Clock, arguments
from torch import nn

WALLS = [["compute", "fast-path-off"]]
FIXES = ["tf32", "bf16"]
TRUTH_STEPS = 36


class SmallSeq2Seq(nn.Module):
    """Stand-in where transformers is not installed."""

    def __init__(self, vocab=101, width=32):
        super().__init__()
        self.mel, self.tok = nn.Linear(80, width), nn.Embedding(vocab, width)
        self.body = nn.Transformer(width, 2, 1, 1, 64, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, input_features, labels):
        out = self.head(self.body(self.mel(input_features.transpose(1, 2)), self.tok(labels)))
        return type("Out", (), {"loss": nn.functional.cross_entropy(out.flatten(0, 1), labels.flatten())})


def build(args):
    if not args.gpu:
        return SmallSeq2Seq(), 101, 40, 10
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(d_model=768, encoder_layers=12, decoder_layers=12, encoder_attention_heads=12,
                           decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072, use_cache=False)
    with torch.device(args.device):
        return WhisperForConditionalGeneration(config), config.vocab_size, 3000, 64


def main():
    args = arguments(150, FIXES)
    if args.fix == "tf32":
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
    model, vocab, frames, targets = build(args)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    batch = 8 if args.gpu else 2
    mel = torch.randn(4, batch, 80, frames, device=args.device)
    labels = torch.randint(0, min(vocab, 50000), (4, batch, targets), device=args.device)
    clock = Clock(args.steps)
    for step in range(args.steps):
        context = torch.autocast(args.device.type, torch.bfloat16) if args.fix == "bf16" else contextlib.nullcontext()
        with context:
            loss = model(input_features=mel[step % 4], labels=labels[step % 4]).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}")
        else:
            loss.item()
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
