"""A field is fitted to measured points with L-BFGS: the closure runs several times in a step."""

import argparse

import torch
from torch import nn


class Field(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.waves = nn.Linear(2, width)
        self.hidden = nn.Linear(width, width)
        self.value = nn.Linear(width, 1)

    def forward(self, points):
        waves = torch.sin(self.waves(points))
        return self.value(torch.tanh(self.hidden(waves))).squeeze(1)


def roughness(net):
    return sum(one.square().sum() for one in net.parameters())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    net = Field(96)
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=4, history_size=6)
    everywhere = torch.rand(8192, 2)
    for step in range(steps):
        points = everywhere[torch.randint(0, 8192, (1024,))]
        measured = torch.sin(6 * points[:, 0]) * torch.cos(4 * points[:, 1])

        def closure():
            optimizer.zero_grad()
            misfit = (net(points) - measured).square().mean()  # noqa: B023
            loss = misfit + 1e-6 * roughness(net)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        if step % 20 == 0:
            print(step, float(loss))


main()
