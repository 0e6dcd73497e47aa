"""Single-stage detector inference: small conv net, box decoding and suppression."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn


class TinyDetector(nn.Module):
    def __init__(self, ch=16, anchors=3, stride=8):
        super().__init__()
        self.anchors, self.stride = anchors, stride
        layers, c = [], 3
        for _ in range(3):
            layers += [nn.Conv2d(c, ch, 3, stride=2, padding=1), nn.BatchNorm2d(ch), nn.SiLU()]
            c, ch = ch, ch * 2
        self.backbone = nn.Sequential(*layers)
        self.head = nn.Conv2d(c, anchors * 5, 1)

    def forward(self, x):
        y = self.head(self.backbone(x))
        b, _, h, w = y.shape
        y = y.view(b, self.anchors, 5, h, w).permute(0, 1, 3, 4, 2)
        gy, gx = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        cx = (gx + y[..., 0].sigmoid()) * self.stride
        cy = (gy + y[..., 1].sigmoid()) * self.stride
        size = torch.tensor([18.0, 30.0, 46.0]).view(1, -1, 1, 1)
        bw, bh = size * (0.3 * y[..., 2]).exp(), size * (0.3 * y[..., 3]).exp()
        boxes = torch.stack([cx - bw / 2, cy - bh / 2, cx + bw / 2, cy + bh / 2], -1)
        return boxes.reshape(b, -1, 4), y[..., 4].reshape(b, -1).sigmoid()


def box_area(b):
    return (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])


def pairwise_iou(a, b):
    lt = torch.maximum(a[:, None, :2], b[None, :, :2])
    rb = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[..., 0] * wh[..., 1]
    return inter / (box_area(a)[:, None] + box_area(b)[None] - inter)


def nms(boxes, scores, thr):
    order = scores.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        i = order[0]
        keep.append(i.item())
        rest = order[1:]
        iou = pairwise_iou(boxes[i].unsqueeze(0), boxes[rest])[0]
        order = rest[iou <= thr]
    return torch.tensor(keep, dtype=torch.long)


def nms_v2(boxes, scores, thr):
    order = scores.argsort(descending=True)
    over = (pairwise_iou(boxes[order], boxes[order]) > thr).numpy()
    dead = np.zeros(len(order), dtype=bool)
    keep = []
    for i in range(len(order)):
        if not dead[i]:
            keep.append(i)
            dead |= over[i]
    return order[keep]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--fix", default="")
    args = p.parse_args()
    torch.manual_seed(0)
    suppress = nms_v2 if args.fix == "v2" else nms

    model = TinyDetector().eval()
    images = torch.randn(24, 3, 128, 128)
    batch, top, thr = 12, 300, 0.6
    total, checksum = 0, 0.0
    with torch.inference_mode():
        for step in range(args.steps):
            if step == args.steps // 3:
                t0 = time.perf_counter()
            start = (step * batch) % len(images)
            boxes, scores = model(images[start:start + batch])
            found = []
            for b, s in zip(boxes, scores):
                s, idx = s.topk(top)
                b = b[idx]
                kept = suppress(b, s, thr)[:100]
                found.append((b[kept], s[kept]))
            total += sum(len(s) for _, s in found)
            checksum += sum(b.mean().item() for b, _ in found)
            if step % 50 == 0:
                print(f"step {step} detections so far {total}")
    ms = (time.perf_counter() - t0) / (args.steps - args.steps // 3) * 1e3
    print(f"detections {total} checksum {checksum / args.steps:.5f}")
    print(f"mean step ms {ms:.2f}")


if __name__ == "__main__":
    main()
