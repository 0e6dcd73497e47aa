"""Brain-tumour segmentation: a residual 3-D U-Net on four MRI modalities of 128^3 voxels, bf16 autocast.

Domain: medical imaging (training). One step is one optimizer step over two volumes.
Why: the cases are cached in ordinary host memory, ready as float32 images and int64 labels, and each batch (100 MB)
  goes to the device with a plain `.to(device)` at the head of the step: a copy from pageable memory, which waits for
  the step before, runs at a fraction of the link's rate, and has nothing beside it on the device.
Trap: no loader and no host work to find (a batch is a view of the cache); every 10th step is of another kind (it adds
  a validation case that lives on the device, and reads the Dice score); 3-D convolutions and instance norms look slow.
Fixes: prefetch: the cache is pinned and the next batch comes over on a side stream while the step computes;
  compact: images travel as float16 and labels as uint8, and are widened on the device.
"""

import torch
import torch.nn.functional as F
from torch import nn

from common import Clock, arguments

WALLS = [["data", "copy-exposed"]]
FIXES = ["prefetch", "compact"]
TRUTH_STEPS = 250
CLASSES = 4


class Residual(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv3d(cin, cout, 3, stride=stride, padding=1, bias=False)
        self.conv2 = nn.Conv3d(cout, cout, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.GroupNorm(8, cout), nn.GroupNorm(8, cout)
        self.skip = nn.Conv3d(cin, cout, 1, stride=stride, bias=False) if stride > 1 or cin != cout else nn.Identity()

    def forward(self, x):
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(h)) + self.skip(x))


class UNet3d(nn.Module):
    def __init__(self, modalities, width):
        super().__init__()
        self.stem = nn.Conv3d(modalities, width, 4, stride=4)
        self.enc1 = Residual(width, width)
        self.enc2 = Residual(width, 2 * width, stride=2)
        self.enc3 = Residual(2 * width, 4 * width, stride=2)
        self.up2 = nn.ConvTranspose3d(4 * width, 2 * width, 2, stride=2)
        self.dec2 = Residual(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose3d(2 * width, width, 2, stride=2)
        self.dec1 = Residual(2 * width, width)
        self.head = nn.Conv3d(width, CLASSES * 64, 1)

    def forward(self, x):
        a = self.enc1(self.stem(x))
        b = self.enc2(a)
        c = self.enc3(b)
        b = self.dec2(torch.cat([self.up2(c), b], dim=1))
        a = self.dec1(torch.cat([self.up1(b), a], dim=1))
        n, _, d, h, w = a.shape
        fine = self.head(a).view(n, CLASSES, 4, 4, 4, d, h, w)
        return fine.permute(0, 1, 5, 2, 6, 3, 7, 4).reshape(n, CLASSES, 4 * d, 4 * h, 4 * w)


def make_cache(batches, size, modalities, side):
    """Batches of (image, label) in host memory: a bright ball of three shells in noise, somewhere in the volume."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(size, modalities, side, side, side, generator=generator)
    axis = torch.linspace(-1, 1, side)
    cache = []
    for _ in range(batches):
        cx, cy, cz = (torch.rand(3, generator=generator) - 0.5).tolist()
        distance = (axis - cx)[:, None, None] ** 2 + (axis - cy)[None, :, None] ** 2 + (axis - cz) ** 2
        label = (distance < 0.25).long() + (distance < 0.12).long() + (distance < 0.04).long()
        cache.append((noise + 0.5 * label, label.expand(size, side, side, side).contiguous()))
    return cache


def pageable(cache, device):
    i = 0
    while True:
        image, label = cache[i % len(cache)]
        yield image.to(device), label.to(device)
        i += 1


def compact(cache, device):
    cache = [(image.half(), label.to(torch.uint8)) for image, label in cache]
    i = 0
    while True:
        image, label = cache[i % len(cache)]
        yield image.to(device).float(), label.to(device).long()
        i += 1


def prefetched(cache, device):
    if device.type != "cuda":
        yield from pageable(cache, device)
    cache = [(image.pin_memory(), label.pin_memory()) for image, label in cache]
    side, i = torch.cuda.Stream(), 0

    def fetch():
        with torch.cuda.stream(side):
            return [x.to(device, non_blocking=True) for x in cache[i % len(cache)]]

    ready = fetch()
    while True:
        torch.cuda.current_stream().wait_stream(side)
        batch = ready
        for x in batch:
            x.record_stream(torch.cuda.current_stream())
        i += 1
        ready = fetch()
        yield batch


def dice(probs, label):
    truth = F.one_hot(label, CLASSES).movedim(-1, 1).to(probs.dtype)
    both = (probs * truth).sum((2, 3, 4))
    return (2 * both + 1) / (probs.sum((2, 3, 4)) + truth.sum((2, 3, 4)) + 1)


def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    batches, size, side, width = (12, 2, 128, 64) if args.gpu else (2, 1, 16, 8)
    cache = make_cache(batches, size, 4, side)
    held_out = [x[:1].to(args.device) for x in cache.pop()]
    with torch.device(args.device):
        model = UNet3d(4, width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=args.gpu)
    source = {"prefetch": prefetched, "compact": compact}.get(args.fix, pageable)(cache, args.device)

    score, clock = 0.0, Clock(args.steps, period=10 if args.steps > 30 else 1)
    for step in range(args.steps):
        image, label = next(source)
        if step % 2:
            image, label = image.flip(-1), label.flip(-1)
        with torch.autocast(args.device.type, dtype=torch.bfloat16):
            logits = model(image)
        loss = F.cross_entropy(logits.float(), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            with torch.no_grad(), torch.autocast(args.device.type, dtype=torch.bfloat16):
                probs = model(held_out[0]).softmax(1)
            score = dice(probs, held_out[1])[:, 1:].mean().item()
        clock.tick()
    print(f"dice {score:.4f}")
    clock.report()


if __name__ == "__main__":
    main()
