"""A classifier fed by a loader, watched closely: activations, gradients, weights, a confusion matrix."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self, count, side, classes):
        self.images = torch.randint(0, 256, (count, 1, side, side), dtype=torch.uint8)
        self.labels = torch.randint(0, classes, (count,))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, at):
        return self.images[at].float() / 255, self.labels[at]


class Watch:
    def __init__(self, net):
        self.seen = {}
        for name, module in net.named_modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                module.register_forward_hook(self.hook(name))

    def hook(self, name):
        def look(module, given, made):
            made = made.detach()
            self.seen[name] = made.mean(), made.std(), (made <= 0).float().mean()

        return look


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    classes, batch, side = 10, 16, 24
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 36, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, classes),
    )  # fmt: skip
    optimizer = torch.optim.RMSprop(net.parameters(), 1e-3)
    Watch(net)
    confusion = torch.zeros(classes, classes, dtype=torch.long)
    running = torch.zeros(())
    loader = DataLoader(Digits(steps * batch, side, classes), batch, shuffle=True)
    for step, (images, labels) in enumerate(loader):
        images = (images - 0.13) / 0.31
        scores = net(images)
        loss = F.cross_entropy(scores, labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        steepness = torch.stack([one.grad.norm() for one in net.parameters()])
        optimizer.step()
        weights = [one.detach().abs().max() for one in net.parameters()]
        guess = scores.detach().argmax(1)
        confusion += torch.bincount(labels * classes + guess, minlength=classes**2).view(classes, classes)
        running = 0.99 * running + 0.01 * loss.detach()
        if step % 50 == 0:
            right = confusion.diagonal().sum() / confusion.sum()
            print(step, running.item(), right.item(), steepness.max().item(), max(weights).item())


main()
