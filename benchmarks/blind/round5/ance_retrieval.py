"""Dense retrieval with hard negatives: the index is refreshed every tenth step.

Domain: language (search), training with a transformers BERT, bf16 autocast.
Why: every tenth step re-embeds 3072 documents eight at a time: 384 forward passes of kernels of a few microseconds, each
     issued by hand. Half a second in which the host cannot launch as fast as the device finishes; the nine training
     steps between are large and keep the device busy.
Trap: nine of ten steps are healthy; a window of a few steps never sees the refresh, or sees little else. The top-k over
      the index and a loss read every 40 steps are cheap.
Fixes: refresh-in-large-batches (the same documents, 512 at a time).
"""

import torch
from torch.nn import functional as F
from transformers import BertConfig, BertModel

from common import Clock, arguments

WALLS = [["overhead", "launch-bound"]]
FIXES = ["refresh-in-large-batches"]
TRUTH_STEPS = 210

EVERY = 10


def embed(model, tokens):
    hidden = model(input_ids=tokens).last_hidden_state
    return F.normalize(hidden.mean(1).float(), dim=-1)


@torch.no_grad()
def refresh(model, corpus, rows, size):
    model.eval()
    parts = [embed(model, corpus[rows[at : at + size]]) for at in range(0, len(rows), size)]
    model.train()
    return torch.cat(parts)


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES, cpu_steps=21)
    torch.manual_seed(0)
    device = args.device
    if args.gpu:
        width, layers, batch, length, indexed, documents = 512, 8, 256, 64, 3072, 100_000
    else:
        width, layers, batch, length, indexed, documents = 64, 2, 8, 16, 64, 500
    size = (512 if args.gpu else 32) if args.fix else 8
    vocabulary = 30_000
    config = BertConfig(vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 64,
                        intermediate_size=4 * width)
    model = BertModel(config, add_pooling_layer=False).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    corpus = torch.randint(vocabulary, (documents, length), device=device)
    queries = torch.randint(vocabulary, (documents, length), device=device)

    clock = Clock(args.steps, period=EVERY)
    for step in range(args.steps):
        if step % EVERY == 0:
            rows = torch.randint(documents, (indexed,), device=device)
            with torch.autocast(device.type, torch.bfloat16):
                index = refresh(model, corpus, rows, size)
        with torch.autocast(device.type, torch.bfloat16):
            pick = torch.randint(documents, (batch,), device=device)
            query = embed(model, queries[pick])
            hard = rows[(query.detach() @ index.T).topk(2, dim=1).indices[:, 1]]
            keys = embed(model, torch.cat([corpus[pick], corpus[hard]]))
        loss = F.cross_entropy(query @ keys.T * 20, torch.arange(batch, device=device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 40 == 0:
            print(f"{step} {loss.item():.4f}", flush=True)
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
