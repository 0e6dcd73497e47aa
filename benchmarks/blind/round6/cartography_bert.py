"""Fine-tune BERT on sentence pairs and keep a map of the data: every sample's loss and confidence, one by one.

Domain: language, transformers (BertForSequenceClassification), bf16 autocast, fused AdamW.
Why: after the forward pass a loop over the 512 samples reads two device scalars each with `float()`. Every read is a
    copy of four bytes that blocks the host for some 15 microseconds: a thousand of them a step, while the device,
    its forward done, has nothing queued and the backward pass cannot be issued.
Trap: the gaps are full of tiny copies and `select` ops, so that they look like many small launches or like Python at
    work; the first of the reads is a wait for the forward pass, which costs nothing by itself.
Fixes: read-together (the losses stay on the device and are read once in 50 steps, in one copy).
"""

import torch
import torch.nn.functional as F
from transformers import BertConfig, BertForSequenceClassification

from common import Clock, arguments

WALLS = [["overhead", "host-sync"]]
FIXES = ["read-together"]
TRUTH_STEPS = 200


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    width, layers, heads, batch, length, words = (512, 4, 8, 512, 64, 16384) if args.gpu else (32, 1, 2, 16, 16, 256)
    samples = 40 * batch

    config = BertConfig(vocab_size=words, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
                        intermediate_size=4 * width, max_position_embeddings=length, num_labels=3)
    with torch.device(args.device):
        model = BertForSequenceClassification(config)
        texts = torch.randint(words, (samples, length))
        labels = torch.randint(3, (samples,))
    model = model.to(args.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, fused=True)

    atlas, waiting = {}, []
    clock = Clock(args.steps)
    for step in range(args.steps):
        first = (step % 40) * batch
        ids = range(first, first + batch)
        truth = labels[first:first + batch]
        with torch.autocast(args.device.type, dtype=torch.bfloat16, enabled=args.gpu):
            logits = model(input_ids=texts[first:first + batch]).logits
        logits = logits.float()
        losses = F.cross_entropy(logits, truth, reduction="none")
        difficulty = losses.detach()
        confidence = logits.detach().softmax(1).gather(1, truth[:, None]).squeeze(1)

        if args.fix == "read-together":
            waiting.append((ids, torch.stack([difficulty, confidence], dim=1)))
            if len(waiting) == 50:
                for kept, pairs in zip(waiting, torch.stack([w[1] for w in waiting]).tolist()):
                    atlas.update(zip(kept[0], pairs))
                waiting.clear()
        else:
            for i, sample in enumerate(ids):
                atlas[sample] = (float(difficulty[i]), float(confidence[i]))

        optimizer.zero_grad(set_to_none=True)
        losses.mean().backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1}: {len(atlas)} samples on the map", flush=True)
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
