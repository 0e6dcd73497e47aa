"""Scene parsing (150 classes) with a small encoder-decoder; running mIoU on the training crops."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.backends.cudnn.benchmark = True


def conv(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class Parser(nn.Module):
    def __init__(self, c, classes):
        super().__init__()
        self.s2 = nn.Sequential(conv(3, c, 2), conv(c, c))
        self.s4 = nn.Sequential(conv(c, 2 * c, 2), conv(2 * c, 2 * c))
        self.s8 = nn.Sequential(conv(2 * c, 4 * c, 2), conv(4 * c, 4 * c), conv(4 * c, 4 * c))
        self.s16 = nn.Sequential(conv(4 * c, 8 * c, 2), conv(8 * c, 8 * c), conv(8 * c, 8 * c))
        self.lat = nn.Conv2d(8 * c, 4 * c, 1)
        self.fuse = conv(4 * c, 4 * c)
        self.cls = nn.Conv2d(4 * c, classes, 1)

    def forward(self, x):
        a = self.s8(self.s4(self.s2(x)))
        b = F.interpolate(self.lat(self.s16(a)), size=a.shape[2:], mode="bilinear")
        return F.interpolate(self.cls(self.fuse(a + b)), size=x.shape[2:], mode="bilinear")


class MeanIoU:
    def __init__(self, classes, device):
        self.classes = classes
        self.inter, self.union = [0] * classes, [0] * classes

    @torch.no_grad()
    def update(self, logits, target):
        pred = logits.argmax(1)
        for c in range(self.classes):
            p, t = pred == c, target == c
            self.inter[c] += (p & t).sum().item()
            self.union[c] += (p | t).sum().item()

    def value(self):
        seen = [i / u for i, u in zip(self.inter, self.union) if u > 0]
        return sum(seen) / max(1, len(seen))


class ConfusionIoU:
    def __init__(self, classes, device):
        self.classes = classes
        self.table = torch.zeros(classes, classes, dtype=torch.long, device=device)

    @torch.no_grad()
    def update(self, logits, target):
        k = self.classes
        cell = target.flatten() * k + logits.argmax(1).flatten()
        self.table += torch.bincount(cell, minlength=k * k).view(k, k)

    def value(self):
        inter = self.table.diagonal()
        union = self.table.sum(0) + self.table.sum(1) - inter
        return (inter[union > 0] / union[union > 0]).mean().item()


def crops(n, size, classes, device):
    small = torch.randint(0, classes, (n, size // 16, size // 16), device=device)
    label = small.repeat_interleave(16, 1).repeat_interleave(16, 2)
    palette = torch.randn(classes, 3, device=device)
    return palette[label].permute(0, 3, 1, 2) + 0.3 * torch.randn(n, 3, size, size, device=device), label


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=40)
    ap.add_argument("--fix", default="")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    a = ap.parse_args()
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(8)
    batch, size, c, classes = (2, 32, 4, 6) if a.tiny else (16, 256, 48, 150)
    model = Parser(c, classes).to(dev, memory_format=torch.channels_last)
    opt = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9, fused=not a.cpu)
    x, y = crops(batch * 4, size, classes, dev)
    x = x.contiguous(memory_format=torch.channels_last)
    metric = (ConfusionIoU if "confusion" in a.fix.split(",") else MeanIoU)(classes, dev)
    sync = torch.cuda.synchronize if dev.type == "cuda" else (lambda: None)
    tail = max(1, a.steps // 2)
    for step in range(a.steps):
        if step == a.steps - tail:
            sync()
            t0 = time.perf_counter()
        s = slice(step % 4 * batch, (step % 4 + 1) * batch)
        with torch.autocast(dev.type, torch.bfloat16):
            logits = model(x[s])
            loss = F.cross_entropy(logits, y[s])
        opt.zero_grad()
        loss.backward()
        opt.step()
        metric.update(logits, y[s])
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} mIoU {metric.value():.4f}")
    sync()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / tail * 1e3:.3f}")
    print(f"final {loss.item():.5f} mIoU {metric.value():.5f}")


if __name__ == "__main__":
    main()
