"""Long-context continued pre-training: a Hugging Face Llama (6 layers, 2048 wide) on single sequences of 8192 tokens, bf16,
loaded with `attn_implementation="eager"` because somebody wanted attention maps once.

Why: the scores (16 heads x 8192 x 8192) are written and read again for the scale, the mask, the softmax in fp32, the cast and
the product, forward and backward: tens of gigabytes a layer.
Fix: sdpa.
"""

import math

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["bandwidth", "unfused-attention"]]
FIXES = ["sdpa"]
TRUTH_STEPS = 36


class TinyLM(nn.Module):
    def __init__(self, vocab, sdpa, d=32):
        super().__init__()
        self.embed, self.qkv, self.head, self.sdpa = nn.Embedding(vocab, d), nn.Linear(d, 3 * d), nn.Linear(d, vocab), sdpa

    def forward(self, input_ids, labels):
        x = self.embed(input_ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.sdpa:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            y = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        logits = self.head(x + y)
        return type("Out", (), {"loss": F.cross_entropy(logits[:, :-1].float().flatten(0, 1), labels[:, 1:].flatten())})


def main():
    args = arguments(170, FIXES)
    kind = "sdpa" if args.fix == "sdpa" else "eager"
    if args.gpu:
        from transformers import AutoModelForCausalLM, LlamaConfig

        config = LlamaConfig(vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=6,
                             num_attention_heads=16, num_key_value_heads=16, max_position_embeddings=8192, use_cache=False)
        with torch.device(args.device):
            model = AutoModelForCausalLM.from_config(config, attn_implementation=kind)
        length, vocab = 8192, 32000
    else:
        model, length, vocab = TinyLM(100, kind == "sdpa"), 32, 100
    model.to(torch.bfloat16).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    book = torch.randint(0, vocab, (64, length), device=args.device)
    clock = Clock(args.steps)
    for step in range(args.steps):
        ids = book[step % 64][None]
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 25 == 0:
            print(f"{step:4d} {loss.item():.3f}")
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
