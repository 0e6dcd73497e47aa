"""Find the blocks of scanned pages: a small detector, then non-maximum suppression and reading order in pure Python.

Domain: vision (document serving), own conv net, bf16 channels_last, inference.
Why: the network needs a few milliseconds for 16 pages. Its 100 best boxes a page then go to Python lists, and a double
    loop compares each with all that were kept: some 80,000 overlaps of pure Python a batch, ten times the network's
    time, with an empty device.
Trap: the device's work ends in a `.tolist()`, a blocking copy that stands at the head of every gap; but it only waits
    for work that has to be done anyway, and without it Python would take just as long. No op runs in the gap.
Fixes: nms-on-device (the same greedy suppression as 100 small tensor steps for all pages at once).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Clock, arguments

WALLS = [["overhead", "host-work"]]
FIXES = ["nms-on-device"]
TRUTH_STEPS = 160
THRESHOLD = 0.5


class Detector(nn.Module):
    def __init__(self, width):
        super().__init__()
        sizes = [3, width, 2 * width, 4 * width, 4 * width]
        self.body = nn.Sequential(*(nn.Sequential(nn.Conv2d(a, b, 3, stride=2, padding=1), nn.ReLU(inplace=True),
                                                  nn.Conv2d(b, b, 3, padding=1), nn.ReLU(inplace=True))
                                    for a, b in zip(sizes, sizes[1:])))
        self.head = nn.Conv2d(4 * width, 5, 1)

    def forward(self, pages, keep):
        """The `keep` best boxes of each page as [pages, keep, 5]: score, x0, y0, x1, y1; best first."""
        out = self.head(self.body(pages)).float()
        count, _, rows, columns = out.shape
        score = out[:, 0].flatten(1).sigmoid()
        best, index = score.topk(keep, dim=1)
        shape = out[:, 1:].flatten(2).transpose(1, 2).gather(1, index[..., None].expand(-1, -1, 4)).tanh()
        x = (index % columns).float() * 16 + 4 * shape[..., 0]
        y = (index // columns).float() * 16 + 4 * shape[..., 1]
        w, h = 10 + 4 * shape[..., 2], 10 + 4 * shape[..., 3]
        return torch.stack([best, x - w, y - h, x + w, y + h], dim=2)


def overlap(a, b):
    width = min(a[3], b[3]) - max(a[1], b[1])
    height = min(a[4], b[4]) - max(a[2], b[2])
    if width <= 0 or height <= 0:
        return 0.0
    both = width * height
    return both / ((a[3] - a[1]) * (a[4] - a[2]) + (b[3] - b[1]) * (b[4] - b[2]) - both)


def suppress(boxes):
    """Greedy non-maximum suppression of one page, the best box first."""
    kept = []
    for box in boxes:
        if all(overlap(box, other) <= THRESHOLD for other in kept):
            kept.append(box)
    return kept


def suppress_on_device(boxes):
    """The same for all pages at once: a mask of the boxes that stay."""
    corner, far = boxes[..., 1:3], boxes[..., 3:5]
    both = (torch.minimum(far[:, :, None], far[:, None]) - torch.maximum(corner[:, :, None], corner[:, None]))
    both = both.clamp(min=0).prod(-1)
    area = (far - corner).prod(-1)
    hits = both / (area[:, :, None] + area[:, None] - both) > THRESHOLD
    hits = hits.triu(1)
    stays = torch.ones(boxes.shape[:2], dtype=torch.bool, device=boxes.device)
    for i in range(boxes.shape[1]):
        stays &= ~(hits[:, i] & stays[:, i:i + 1])
    return stays


def reading_order(boxes):
    return sorted(boxes, key=lambda box: (int(box[2] // 32), box[1]))


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    side, width, batch, keep = (640, 32, 16, 100) if args.gpu else (256, 8, 2, 40)

    kind = dict(device=args.device, dtype=torch.bfloat16 if args.gpu else torch.float32)
    model = Detector(width).to(**kind).to(memory_format=torch.channels_last).eval()
    scans = [torch.randn(batch, 3, side, side, **kind).contiguous(memory_format=torch.channels_last) for _ in range(4)]

    served = 0
    clock = Clock(args.steps)
    with torch.inference_mode():
        for step in range(args.steps):
            boxes = model(scans[step % 4], keep)
            if args.fix == "nms-on-device":
                stays = suppress_on_device(boxes)
                packed = torch.cat([boxes, stays.unsqueeze(-1)], dim=2).tolist()
                pages = [[box[:5] for box in page if box[5]] for page in packed]
            else:
                pages = [suppress(page) for page in boxes.tolist()]
            answers = [reading_order(page) for page in pages]
            served += sum(len(answer) for answer in answers)
            if step % 50 == 49:
                print(f"batch {step + 1}: {served} blocks so far", flush=True)
            clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
