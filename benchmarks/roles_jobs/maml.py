"""Learning to learn: two inner steps that are differentiated through, for several tasks a step."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def predict(weights, inputs):
    hidden = F.relu(F.linear(inputs, weights[0], weights[1]))
    hidden = F.relu(F.linear(hidden, weights[2], weights[3]))
    return F.linear(hidden, weights[4], weights[5])


def waves(tasks, points):
    inputs = 10 * torch.rand(tasks, points, 1) - 5
    amplitude, phase = 0.1 + 5 * torch.rand(tasks, 1, 1), 3.14 * torch.rand(tasks, 1, 1)
    return inputs, amplitude * torch.sin(inputs + phase)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    weights = list(net.parameters())
    optimizer = torch.optim.Adam(weights, 1e-3)
    tasks, points = 4, 64
    for step in range(steps):
        inputs, wanted = waves(tasks, 2 * points)
        total = 0.0
        for task in range(tasks):
            fast = weights
            for _ in range(2):
                guess = predict(fast, inputs[task, :points])
                inner = F.mse_loss(guess, wanted[task, :points])
                gradients = torch.autograd.grad(inner, fast, create_graph=True)
                fast = [one - 0.01 * change for one, change in zip(fast, gradients, strict=True)]
            answer = predict(fast, inputs[task, points:])
            total = total + F.mse_loss(answer, wanted[task, points:])
        loss = total / tasks
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


main()
