"""Contrastive learning with a momentum encoder, a queue of keys, and a top-1 figure in every step."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self, width, size):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.body = nn.Sequential(nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU())
        self.head = nn.Linear(2 * width, size)

    def forward(self, images):
        hidden = self.body(self.stem(images)).mean((2, 3))
        return self.head(hidden)


def view(images):
    flipped = torch.where(torch.rand(len(images), 1, 1, 1) < 0.5, images.flip(3), images)
    bright = flipped * (0.8 + 0.4 * torch.rand(len(images), 1, 1, 1))
    return bright + 0.05 * torch.randn_like(bright)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    batch, side, size, keys = 16, 32, 32, 512
    query_net, key_net = Encoder(16, size), Encoder(16, size).requires_grad_(False)
    key_net.load_state_dict(query_net.state_dict())
    ours, theirs = list(query_net.parameters()), list(key_net.parameters())
    optimizer = torch.optim.SGD(ours, 0.03, momentum=0.9, weight_decay=1e-4)
    pool = torch.rand(256, 3, side, side)
    queue = F.normalize(torch.randn(keys, size), dim=1)
    at = 0
    for step in range(steps):
        images = pool[torch.randint(0, len(pool), (batch,))]
        first, second = view(images), view(images)
        query = F.normalize(query_net(first), dim=1)
        with torch.no_grad():
            torch._foreach_lerp_(theirs, ours, 0.001)
            key = F.normalize(key_net(second), dim=1)
        positive = (query * key).sum(1, keepdim=True)
        logits = torch.cat([positive, query @ queue.t()], 1) / 0.07
        loss = F.cross_entropy(logits, torch.zeros(batch, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        queue[at : at + batch] = key
        at = (at + batch) % keys
        top1 = (logits.argmax(1) == 0).float().mean().item()
        if step % 50 == 0:
            print(step, top1)


main()
