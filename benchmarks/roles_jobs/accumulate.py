"""Gradients of four small batches add up, scaled; an average of the weights is judged in every step."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Tagger(nn.Module):
    def __init__(self, words, width, tags):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.read = nn.GRU(width, width, batch_first=True)
        self.norm, self.tag = nn.LayerNorm(width), nn.Linear(width, tags)

    def forward(self, tokens):
        states, _ = self.read(self.embed(tokens))
        return self.tag(self.norm(states))


@torch.no_grad()
def judge(net, tokens, tags):
    net.eval()
    right = (net(tokens).argmax(-1) == tags).float().mean()
    net.train()
    return right.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    words, tags, batch, length, parts = 500, 12, 8, 12, 4
    net = Tagger(words, 48, tags)
    smooth = torch.optim.swa_utils.AveragedModel(net, use_buffers=True)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cpu")
    corpus = torch.randint(0, words, (20_000,))
    meaning = torch.randint(0, tags, (words,))
    held = corpus[: batch * length].view(batch, length)
    span = torch.arange(length)
    best = 0.0
    for step in range(steps):
        for _ in range(parts):
            start = torch.randint(0, len(corpus) - length, (batch, 1))
            tokens = corpus[start + span]
            wanted = meaning[tokens]
            tokens = torch.where(torch.rand(batch, length) < 0.1, 0, tokens)
            scores = net(tokens)
            loss = F.cross_entropy(scores.flatten(0, 1), wanted.flatten()) / parts
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=False)
        smooth.update_parameters(net)
        best = max(best, judge(smooth, held, meaning[held]))
        if step % 50 == 0:
            print(step, loss.item(), best)


main()
