"""A safety scorer in front of a chat service.

Domain: language, serving with a transformers Llama trunk under autocast.
Why: the trunk was loaded in float32 and runs under `autocast`. The casts are kept only until the context ends, so every
     request casts 2.8 billion weights to bf16 again: 17 GB moved for matmuls that need less than half that time themselves.
Trap: the matmuls are in bf16 as they should be; the scores are read back after every request; Llama's norms cast as well,
      but only small activations.
Fixes: bf16-weights (the model is converted once).
"""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaModel

from common import Clock, arguments

WALLS = [["bandwidth", "dtype-casts"]]
FIXES = ["bf16-weights"]
TRUTH_STEPS = 1500


class Scorer(nn.Module):
    def __init__(self, config, labels=6):
        super().__init__()
        self.trunk = LlamaModel(config)
        self.head = nn.Linear(config.hidden_size, labels)

    def forward(self, tokens):
        hidden = self.trunk(input_ids=tokens, use_cache=False).last_hidden_state
        return torch.sigmoid(self.head(hidden[:, -1]))


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    width, inner, layers, batch, length = (8192, 22016, 4, 2, 96) if args.gpu else (256, 512, 2, 2, 16)
    vocabulary = 8000
    config = LlamaConfig(vocab_size=vocabulary, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
                         num_attention_heads=width // 128, num_key_value_heads=max(1, width // 1024), max_position_embeddings=512)
    with args.device:
        model = Scorer(config)
    model = model.to(args.device).eval()
    if args.fix == "bf16-weights":
        model = model.to(torch.bfloat16)
    requests = torch.randint(vocabulary, (64, batch, length))

    clock = Clock(args.steps)
    flagged = 0
    with torch.inference_mode():
        for step in range(args.steps):
            tokens = requests[step % 64].to(args.device)
            with torch.autocast(args.device.type, torch.bfloat16):
                scores = model(tokens)
            flagged += int((scores.float().cpu().amax(1) > 0.5).sum())
            clock.tick()
    print("flagged", flagged, flush=True)
    clock.report()


if __name__ == "__main__":
    main()
