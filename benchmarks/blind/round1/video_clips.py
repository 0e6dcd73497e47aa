"""Action recognition, TSN style: ResNet-18 over 16 frames a clip, 64 clips a batch, decoded clips already lie in RAM.

Why: every batch is 200 MB of float32 in ordinary (pageable) memory, sent with `.to(device)` on the compute stream: the
device does nothing else meanwhile, and the host stands in the copy.
Fixes: pin_prefetch: pinned memory, the next batch copied on a side stream. uint8: a quarter of the bytes, scaled on the GPU.
"""

import random

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["data", "copy-exposed"]]
FIXES = ["pin_prefetch", "uint8"]
TRUTH_STEPS = 90


def backbone(gpu):
    if gpu:
        import torchvision

        net = torchvision.models.resnet18(weights=None)
        net.fc = nn.Identity()
        return net, 512
    return nn.Sequential(nn.Conv2d(3, 8, 7, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()), 8


class TSN(nn.Module):
    def __init__(self, gpu, classes=400):
        super().__init__()
        self.net, width = backbone(gpu)
        self.head = nn.Linear(width, classes)

    def forward(self, clips):
        b, t = clips.shape[:2]
        frames = clips.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        return self.head(self.net(frames).view(b, t, -1).mean(1))


class ClipStore:
    """A handful of shuffled shards of decoded clips, one shard a batch."""

    def __init__(self, shards, shape, dtype, pin):
        base = torch.randint(0, 256, shape, dtype=torch.uint8)
        if dtype == torch.float32:
            base = base.float().div_(255)
        self.shards = [base] + [base.clone() for _ in range(shards - 1)]
        if pin:
            self.shards = [shard.pin_memory() for shard in self.shards]
        self.labels = torch.randint(0, 400, (shards, shape[0]))

    def __iter__(self):
        rng = random.Random(0)
        while True:
            i = rng.randrange(len(self.shards))
            yield self.shards[i], self.labels[i]


def prefetched(store, device):
    stream = torch.cuda.Stream()
    source = iter(store)

    def fetch():
        clips, labels = next(source)
        with torch.cuda.stream(stream):
            return clips.to(device, non_blocking=True), labels.to(device, non_blocking=True)

    batch = fetch()
    while True:
        torch.cuda.current_stream().wait_stream(stream)
        for part in batch:
            part.record_stream(torch.cuda.current_stream())
        following = fetch()
        yield batch
        batch = following


def main():
    args = arguments(500, FIXES)
    shape = (64, 16, 3, 128, 128) if args.gpu else (2, 2, 3, 32, 32)
    pin = args.fix == "pin_prefetch" and args.gpu
    store = ClipStore(4, shape, torch.uint8 if args.fix == "uint8" else torch.float32, pin)
    model = TSN(args.gpu).to(args.device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, fused=True)
    clock = Clock(args.steps)
    batches = prefetched(store, args.device) if pin else iter(store)
    for step in range(args.steps):
        clips, labels = next(batches)
        clips, labels = clips.to(args.device), labels.to(args.device)
        if clips.dtype == torch.uint8:
            clips = clips.float().div_(255)
        with torch.autocast(args.device.type, torch.bfloat16):
            loss = F.cross_entropy(model(clips), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(step, loss.item())
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
