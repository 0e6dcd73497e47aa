"""Audio tagging: compress a spectrogram CNN into a phone-sized one."""
import argparse
import contextlib
import time

import torch
import torch.nn.functional as F
from torch import nn


def conv(i, o, stride):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


def tagger(width, depth, tags):
    layers, c = [conv(1, width, 2)], width
    for i in range(depth):
        step = 2 if i % 2 == 0 else 1
        layers.append(conv(c, width * step if i % 2 == 0 and c < 2 * width else c, step))
        c = layers[-1][0].out_channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, tags))


class Clips:
    def __init__(self, n, tags, seed):
        g = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, tags, (n,), generator=g)
        proto = torch.randn(tags, 1, 48, 1, generator=g)
        self.x = proto[self.y] + torch.randn(n, 1, 48, 64, generator=g)
        self.g = g

    def draw(self, n):
        i = torch.randint(0, len(self.y), (n,), generator=self.g)
        return self.x[i], self.y[i]


class Distiller:
    def __init__(self, teacher, student, temp=3.0, alpha=0.7, lr=0.03, guard=False):
        self.teacher, self.student = teacher.eval(), student.train()
        self.temp, self.alpha = temp, alpha
        self.guard = torch.no_grad if guard else contextlib.nullcontext
        self.opt = torch.optim.SGD(student.parameters(), lr=lr, momentum=0.9)

    def loss(self, x, y):
        with self.guard():
            t = self.teacher(x)
        s = self.student(x)
        soft = F.kl_div(F.log_softmax(s / self.temp, 1), F.softmax(t / self.temp, 1), reduction="batchmean")
        return self.alpha * self.temp ** 2 * soft + (1 - self.alpha) * F.cross_entropy(s, y)

    def step(self, x, y):
        loss = self.loss(x, y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--batch", type=int, default=24)
    p.add_argument("--teacher-width", type=int, default=32)
    p.add_argument("--student-width", type=int, default=8)
    p.add_argument("--fix", action="store_true")
    args = p.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    clips = Clips(1000, 20, 0)
    teacher = tagger(args.teacher_width, 5, 20)
    student = tagger(args.student_width, 3, 20)
    job = Distiller(teacher, student, guard=args.fix)
    times = []
    for step in range(1, args.steps + 1):
        t0 = time.perf_counter()
        x, y = clips.draw(args.batch)
        value = job.step(x, y)
        times.append(time.perf_counter() - t0)
        if step % 20 == 0:
            print(f"step {step} loss {value:.5f}")
    tail = times[len(times) // 2:]
    print(f"MEAN_STEP_MS {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
