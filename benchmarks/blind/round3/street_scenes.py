"""Semantic segmentation service: DeepLabV3-ResNet50 in bf16, 8 frames of 512 x 1024; the full softmax over 19 classes is brought
to the host with `.cpu()`, where the service averages it over a few regions.

Why: 320 MB of fp32 go into freshly allocated pageable memory each call; the host blocks on it, and the device, done with
its convolutions long before, waits for the next call.
Trap: there is no `.item()`, only one transfer a call, and it is not host-to-device.
Fixes: regions_on_gpu: the averages are computed on the device, a few kilobytes come back. pinned_half: bf16 into a pinned
buffer, fetched while the next call runs.
"""

import torch
from common import Clock, arguments
from torch import nn

WALLS = [["overhead", "host-sync"]]
FIXES = ["regions_on_gpu", "pinned_half"]
TRUTH_STEPS = 75


class Parser(nn.Module):
    def __init__(self, gpu, classes=19):
        super().__init__()
        if gpu:
            import torchvision

            self.net = torchvision.models.segmentation.deeplabv3_resnet50(
                weights=None, weights_backbone=None, num_classes=classes)
        else:
            self.net = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, classes, 1), nn.Upsample(scale_factor=2))

    def forward(self, frames):
        out = self.net(frames)
        return (out["out"] if isinstance(out, dict) else out).float().softmax(1)


def region_means(probabilities, height, width):
    cells = [(slice(height // 2, height // 2 + 16), slice(x, x + 16)) for x in range(0, width, width // 8)]
    return torch.stack([probabilities[:, :, rows, columns].float().mean((2, 3)) for rows, columns in cells])


class PinnedRing:
    def __init__(self, like):
        self.buffers = [torch.empty(like.shape, dtype=torch.bfloat16, pin_memory=True) for _ in range(2)]
        self.events, self.count = [torch.cuda.Event(), torch.cuda.Event()], 0

    def swap(self, tensor):
        """Start fetching this call's tensor; give back the one before it."""
        now, before = self.count % 2, (self.count + 1) % 2
        self.buffers[now].copy_(tensor.bfloat16(), non_blocking=True)
        self.events[now].record()
        self.count += 1
        if self.count == 1:
            return None
        self.events[before].synchronize()
        return self.buffers[before]


@torch.inference_mode()
def main():
    args = arguments(330, FIXES)
    batch, height, width = (8, 512, 1024) if args.gpu else (1, 64, 128)
    model = Parser(args.gpu).eval().to(args.device, torch.bfloat16, memory_format=torch.channels_last)
    video = torch.rand(4, batch, 3, height, width, device=args.device).bfloat16()
    ring = None
    clock = Clock(args.steps)
    history = []
    for call in range(args.steps):
        frames = video[call % 4].contiguous(memory_format=torch.channels_last)
        probabilities = model(frames)
        if args.fix == "regions_on_gpu":
            means = region_means(probabilities, height, width).cpu()
        elif args.fix == "pinned_half" and args.gpu:
            ring = ring or PinnedRing(probabilities)
            fetched = ring.swap(probabilities)
            means = region_means(fetched, height, width) if fetched is not None else None
        else:
            means = region_means(probabilities.cpu(), height, width)
        history = [*history[-9:], means]
        clock.tick()
    print("road in the middle cell", history[-1][4, 0, 0].item())
    clock.report()


if __name__ == "__main__":
    main()
