"""Segments satellite tiles into land cover for a mapping service: four tiles a call go through an
encoder-decoder, and what the map server needs is placed into its outgoing queue on the host."""

from collections import deque

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["overhead", "host-sync"]]
FIXES = {
    "codes": "class and confidence are reduced to bytes on the device before they leave it",
    "channels-last": "the network runs channels-last",
}
TRUTH_STEPS = 45


def stage(inputs, outputs, stride):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1),
        nn.GroupNorm(8, outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.ReLU(inplace=True),
    )


class LandCover(nn.Module):
    def __init__(self, bands, width, classes):
        super().__init__()
        self.stem = nn.Conv2d(bands, width, 4, stride=4)
        self.upper = stage(width, width * 2, 2)
        self.lower = stage(width * 2, width * 4, 2)
        self.lateral = nn.Conv2d(width * 2, width * 4, 1)
        self.fuse = stage(width * 4, width * 2, 1)
        self.classify = nn.Conv2d(width * 2, classes, 1)

    def forward(self, tiles):
        half = self.upper(self.stem(tiles))
        quarter = self.lower(half)
        raised = F.interpolate(quarter, scale_factor=2.0, mode="bilinear") + self.lateral(half)
        coarse = self.classify(self.fuse(raised))
        return F.interpolate(coarse.float(), size=tiles.shape[-2:], mode="bilinear")


class Segmenter:
    def __init__(self, model, device, codes, channels_last):
        self.model, self.device, self.codes = model, device, codes
        self.layout = torch.channels_last if channels_last else torch.contiguous_format
        self.model.to(memory_format=self.layout)

    @torch.inference_mode()
    def __call__(self, tiles):
        tiles = tiles.to(self.device).to(torch.bfloat16).div_(255)
        logits = self.model(tiles.contiguous(memory_format=self.layout))
        probabilities = logits.softmax(1)
        if self.codes:
            confidence, cover = probabilities.max(1)
            return torch.stack([cover.byte(), confidence.mul(255).byte()], 1).cpu()
        return probabilities.cpu()


def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(12)
    batch, side, width, classes = (4, 1024, 64, 16) if args.gpu else (1, 64, 8, 4)
    model = LandCover(4, width, classes).to(args.device, torch.bfloat16).eval()
    segment = Segmenter(model, args.device, args.fix == "codes", args.fix == "channels-last")
    scene = torch.randint(0, 256, (8, batch, 4, side, side), dtype=torch.uint8)
    outgoing = deque(maxlen=4)

    clock = Clock(args.steps)
    for step in range(args.steps):
        outgoing.append((step, segment(scene[step % 8])))
        clock.tick()
    clock.report()
    print("queued", [(number, tuple(result.shape)) for number, result in outgoing])


if __name__ == "__main__":
    main()
