"""Anchor-free detector (FCOS style head on a small FPN), synthetic street scenes."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

STRIDES = (8, 16, 32)
RANGES = ((-1, 64), (64, 128), (128, 1e8))


def cbr(i, o, s=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class Detector(nn.Module):
    def __init__(self, w=64, classes=20):
        super().__init__()
        self.stem = nn.Sequential(cbr(3, w // 2, 2), cbr(w // 2, w, 2))
        self.c3 = nn.Sequential(cbr(w, 2 * w, 2), cbr(2 * w, 2 * w))
        self.c4 = nn.Sequential(cbr(2 * w, 4 * w, 2), cbr(4 * w, 4 * w))
        self.c5 = nn.Sequential(cbr(4 * w, 8 * w, 2), cbr(8 * w, 8 * w))
        self.lat = nn.ModuleList(nn.Conv2d(k * w, 2 * w, 1) for k in (2, 4, 8))
        self.tower = nn.Sequential(cbr(2 * w, 2 * w), cbr(2 * w, 2 * w))
        self.cls = nn.Conv2d(2 * w, classes, 3, 1, 1)
        self.box = nn.Conv2d(2 * w, 4, 3, 1, 1)
        nn.init.constant_(self.cls.bias, -4.6)

    def forward(self, x):
        c3 = self.c3(self.stem(x))
        c4 = self.c4(c3)
        c5 = self.c5(c4)
        p5 = self.lat[2](c5)
        p4 = self.lat[1](c4) + F.interpolate(p5, scale_factor=2)
        p3 = self.lat[0](c3) + F.interpolate(p4, scale_factor=2)
        cls, box = [], []
        for p, s in zip((p3, p4, p5), STRIDES):
            t = self.tower(p)
            cls.append(self.cls(t).flatten(2).transpose(1, 2))
            box.append(F.softplus(self.box(t)).flatten(2).transpose(1, 2) * s)
        return torch.cat(cls, 1), torch.cat(box, 1)


def make_points(size, dev):
    pts, rng = [], []
    for s, r in zip(STRIDES, RANGES):
        g = (torch.arange(size // s, device=dev) + 0.5) * s
        y, x = torch.meshgrid(g, g, indexing="ij")
        p = torch.stack([x, y], -1).reshape(-1, 2)
        pts.append(p)
        rng.append(torch.tensor(r, device=dev).expand(len(p), 2))
    return torch.cat(pts), torch.cat(rng)


def assign_one(points, ranges, boxes, labels):
    """Targets of one image: every location takes the smallest box that holds it."""
    n = len(points)
    cls_t = torch.full((n,), -1, dtype=torch.long, device=points.device)
    reg_t = torch.zeros(n, 4, device=points.device)
    best = torch.full((n,), float("inf"), device=points.device)
    for box, lab in zip(boxes, labels):
        x1, y1, x2, y2 = box
        area = (x2 - x1) * (y2 - y1)
        if area.item() < 16:                       # degenerate annotation
            continue
        ltrb = torch.stack([points[:, 0] - x1, points[:, 1] - y1, x2 - points[:, 0], y2 - points[:, 1]], 1)
        far = ltrb.max(1).values
        ok = (ltrb.min(1).values > 0) & (far > ranges[:, 0]) & (far <= ranges[:, 1]) & (area < best)
        if ok.any():
            cls_t[ok] = lab
            reg_t[ok] = ltrb[ok]
            best[ok] = area
    return cls_t, reg_t


def assign_loop(points, ranges, boxes, labels, counts):
    outs = [assign_one(points, ranges, b[:c], l[:c]) for b, l, c in zip(boxes, labels, counts)]
    return torch.stack([o[0] for o in outs]), torch.stack([o[1] for o in outs])


def assign_batched(points, ranges, boxes, labels, counts_dev):
    p = points[None, None]                                                    # 1 1 N 2
    ltrb = torch.cat([p - boxes[:, :, None, :2], boxes[:, :, None, 2:] - p], -1)
    far = ltrb.amax(-1)
    area = ((boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1]))
    valid = (torch.arange(boxes.size(1), device=boxes.device) < counts_dev[:, None]) & (area >= 16)
    ok = (ltrb.amin(-1) > 0) & (far > ranges[:, 0]) & (far <= ranges[:, 1]) & valid[..., None]
    cost = torch.where(ok, area[..., None], float("inf"))
    best, who = cost.min(1)                                                   # B N
    cls_t = torch.where(best.isinf(), -1, labels.gather(1, who))
    reg_t = ltrb.gather(1, who[:, None, :, None].expand(-1, 1, -1, 4)).squeeze(1)
    return cls_t, reg_t


def detection_loss(cls, box, cls_t, reg_t):
    cls, box = cls.float(), box.float()
    pos = cls_t >= 0
    onehot = F.one_hot(cls_t.clamp(min=0), cls.size(-1)).float() * pos[..., None]
    p = cls.sigmoid()
    pt = p * onehot + (1 - p) * (1 - onehot)
    focal = (1 - pt) ** 2 * F.binary_cross_entropy_with_logits(cls, onehot, reduction="none")
    npos = pos.sum().clamp(min=1)
    t = reg_t.clamp(min=0)
    inter = (torch.minimum(box[..., 0], t[..., 0]) + torch.minimum(box[..., 2], t[..., 2])) * \
            (torch.minimum(box[..., 1], t[..., 1]) + torch.minimum(box[..., 3], t[..., 3]))
    union = (box[..., 0] + box[..., 2]) * (box[..., 1] + box[..., 3]) + \
            (t[..., 0] + t[..., 2]) * (t[..., 1] + t[..., 3]) - inter
    iou = (inter + 1) / (union + 1)
    return (focal.sum() + ((1 - iou) * pos).sum()) / npos


def scenes(n, bs, size, most, dev):
    g = torch.Generator().manual_seed(3)
    out = []
    for _ in range(n):
        img = torch.randn(bs, 3, size, size, generator=g).to(dev, memory_format=torch.channels_last)
        wh = torch.rand(bs, most, 2, generator=g) ** 2 * size * 0.6 + 6
        xy = torch.rand(bs, most, 2, generator=g) * (size - wh)
        cnt = torch.randint(most // 3, most + 1, (bs,), generator=g)
        out.append((img, torch.cat([xy, xy + wh], -1).to(dev),
                    torch.randint(0, 20, (bs, most), generator=g).to(dev), cnt))
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="batched_assign")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    args = ap.parse_args()
    fix = set(filter(None, args.fix.split(",")))
    dev = torch.device("cpu" if args.cpu else "cuda")
    bs, size, most, w = (2, 64, 4, 8) if args.tiny else (16, 512, 24, 64)
    torch.manual_seed(0)
    data = scenes(2 if args.tiny else 6, bs, size, most, dev)
    model = Detector(w).to(dev, memory_format=torch.channels_last)
    opt = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
    points, ranges = make_points(size, dev)
    cnt_dev = [d[3].to(dev) for d in data]
    window = min(args.steps, max(3, args.steps // 3))
    for it in range(args.steps):
        if it == args.steps - window:
            if dev.type == "cuda":
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        img, boxes, labels, counts = data[it % len(data)]
        with torch.autocast(dev.type, torch.bfloat16):
            cls, box = model(img)
        with torch.no_grad():
            if "batched_assign" in fix:
                targets = assign_batched(points, ranges, boxes, labels, cnt_dev[it % len(data)])
            else:
                targets = assign_loop(points, ranges, boxes, labels, counts)
        loss = detection_loss(cls, box, *targets)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if it % 50 == 0:
            print(f"iter {it} loss {loss.item():.3f}")
    if dev.type == "cuda":
        torch.cuda.synchronize()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / window * 1e3:.3f}")


if __name__ == "__main__":
    main()
