"""Land-cover segmentation: U-Net, 32 classes, combined focal / Dice / Tversky objective."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.backends.cudnn.benchmark = True
torch.set_float32_matmul_precision("high" if torch.cuda.is_available() else "highest")

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
BATCH, SIZE, CLASSES, BASE = (16, 512, 32, 32) if CUDA else (2, 32, 5, 8)


class DoubleConv(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, cin=4, classes=CLASSES, base=BASE, depth=4):
        super().__init__()
        widths = [base * 2 ** i for i in range(depth)]
        self.down = nn.ModuleList()
        for w in widths:
            self.down.append(DoubleConv(cin, w))
            cin = w
        self.up = nn.ModuleList()
        self.merge = nn.ModuleList()
        for w in reversed(widths[:-1]):
            self.up.append(nn.ConvTranspose2d(cin, w, 2, stride=2))
            self.merge.append(DoubleConv(2 * w, w))
            cin = w
        self.head = nn.Conv2d(cin, classes, 1)

    def forward(self, x):
        skips = []
        for i, block in enumerate(self.down):
            if i:
                x = F.max_pool2d(x, 2)
            x = block(x)
            skips.append(x)
        skips.pop()
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([up(x), skips.pop()], dim=1))
        return self.head(x)


def segmentation_loss(logits, target, class_weight, gamma=2.0, smoothing=0.05, alpha=0.3, beta=0.7):
    logits = logits.float()
    k = logits.shape[1]
    classes = torch.arange(k, device=logits.device).view(1, k, 1, 1)
    onehot = (target.unsqueeze(1) == classes).float()
    soft = onehot * (1 - smoothing) + smoothing / k

    logp = F.log_softmax(logits, dim=1)
    prob = logp.exp()

    focal = -soft * (1 - prob) ** gamma * logp * class_weight.view(1, k, 1, 1)
    focal = focal.sum(1).mean()

    dims = (0, 2, 3)
    tp = (prob * onehot).sum(dims)
    fp = (prob * (1 - onehot)).sum(dims)
    fn = ((1 - prob) * onehot).sum(dims)
    dice = 1 - ((2 * tp + 1) / (2 * tp + fp + fn + 1)).mean()
    tversky = 1 - ((tp + 1) / (tp + alpha * fp + beta * fn + 1)).mean()

    entropy = -(prob * logp).sum(1).mean()
    return focal + dice + tversky ** 0.75 + 0.01 * entropy


class TilePool:
    """A few synthetic tiles with blob-like labels, kept on the device."""

    def __init__(self, n=8):
        g = torch.Generator().manual_seed(0)
        self.batches = []
        for _ in range(n):
            coarse = torch.randn(BATCH, CLASSES, SIZE // 16, SIZE // 16, generator=g).to(DEVICE)
            label = F.interpolate(coarse.argmax(1, keepdim=True).float(), size=(SIZE, SIZE))[:, 0].long()
            image = torch.randn(BATCH, 4, SIZE, SIZE, generator=g).to(DEVICE)
            image = image + label.unsqueeze(1) / CLASSES
            self.batches.append((image.contiguous(memory_format=torch.channels_last), label))

    def __getitem__(self, step):
        return self.batches[step % len(self.batches)]


class Trainer:
    def __init__(self, lr=3e-4):
        torch.manual_seed(0)
        self.model = UNet().to(DEVICE, memory_format=torch.channels_last)
        self.loss_fn = segmentation_loss
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=1e-2)
        self.class_weight = torch.linspace(0.5, 1.5, CLASSES, device=DEVICE)
        self.data = TilePool()

    def train_step(self, step):
        image, label = self.data[step]
        with torch.autocast(DEVICE.type, dtype=torch.bfloat16, enabled=torch.cuda.is_available()):
            logits = self.model(image)
        loss = self.loss_fn(logits, label, self.class_weight)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        return loss.detach()

    def train(self, steps):
        self.model.train()
        start = time.time()
        for step in range(steps):
            loss = self.train_step(step)
            if step % 100 == 0:
                print(f"step {step} loss {loss.item():.4f} {time.time() - start:.1f}s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20000)
    Trainer().train(parser.parse_args().steps)
