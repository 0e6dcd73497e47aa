"""A speech recogniser trained on its own word errors: every fourth step scores sampled transcripts.

Domain: speech, policy gradient on edit distance; plain loop, bf16 autocast.
Why: every fourth step samples eight transcripts an utterance and scores each with an edit distance written in Python.
     That table-filling takes a quarter of a second on the host with no operator under it; the device has nothing to do.
Trap: the gap begins with a `.tolist()`, which looks like the culprit but waits only for the forward pass; three of four
      steps have no gap at all.
Fixes: bit-parallel (the same distances, one machine word operation a token instead of a row of the table).
"""

import torch
from torch import nn
from torch.nn import functional as F

from common import Clock, arguments

WALLS = [["overhead", "host-work"]]
FIXES = ["bit-parallel"]
TRUTH_STEPS = 160

EVERY = 4


def distance_table(one, other):
    above = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b)))
        above = row
    return above[-1]


def distance_bits(one, other):
    """Myers' bit-parallel distance."""
    where = {}
    for i, token in enumerate(one):
        where[token] = where.get(token, 0) | 1 << i
    full, last, score = (1 << len(one)) - 1, 1 << len(one) - 1, len(one)
    up, down = full, 0
    for token in other:
        match = where.get(token, 0)
        diagonal = (((match & up) + up) ^ up) | match | down
        plus, minus = down | ~(diagonal | up) & full, up & diagonal
        score += bool(plus & last) - bool(minus & last)
        plus = plus << 1 | 1
        up, down = (minus << 1 | ~(diagonal | plus)) & full, plus & diagonal & full
    return score


class Recogniser(nn.Module):
    def __init__(self, width, layers, vocabulary):
        super().__init__()
        self.shrink = nn.Sequential(nn.Conv1d(80, width, 5, 2, 2), nn.GELU(), nn.Conv1d(width, width, 5, 2, 2), nn.GELU())
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.0, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, sound):
        return self.out(self.encoder(self.shrink(sound).transpose(1, 2)))


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES, cpu_steps=9)
    torch.manual_seed(0)
    device = args.device
    width, layers, batch, frames, vocabulary, tries = (768, 10, 32, 1600, 5000, 8) if args.gpu else (64, 2, 4, 80, 100, 4)
    words = 64 if args.gpu else 12
    distance = distance_bits if args.fix == "bit-parallel" else distance_table
    model = Recogniser(width, layers, vocabulary).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    sounds = torch.randn(8, batch, 80, frames, device=device)
    texts = torch.randint(vocabulary, (8, batch, words), generator=torch.Generator().manual_seed(1))
    texts_there = texts.to(device)
    reference = [[row.tolist() for row in part] for part in texts]
    stride = frames // 4 // words

    clock = Clock(args.steps, period=EVERY)
    for step in range(args.steps):
        part = step % 8
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(sounds[part])[:, : stride * words : stride]
        logits = logits.float()
        loss = F.cross_entropy(logits.flatten(0, 1), texts_there[part].flatten())
        if step % EVERY == EVERY - 1:
            policy = torch.distributions.Categorical(logits=logits)
            sampled = policy.sample((tries,))
            errors = [[distance(reference[part][row], text) for row, text in enumerate(one)] for one in sampled.tolist()]
            risk = torch.tensor(errors, dtype=torch.float32).to(device)
            advantage = risk - risk.mean(0, keepdim=True)
            loss = loss + 0.1 * (policy.log_prob(sampled).sum(-1) * advantage).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        clock.tick()
    print(f"loss {loss.item():.4f}", flush=True)
    clock.report()


if __name__ == "__main__":
    main()
