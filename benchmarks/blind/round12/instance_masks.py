"""Instance segmentation inference: network, boxes, and full-resolution masks per image."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def conv_bn(i, o, s=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class QueryMasks(nn.Module):
    def __init__(self, c, queries, mask=28):
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, c, 2), conv_bn(c, c, 2), conv_bn(c, 2 * c, 2), conv_bn(2 * c, 2 * c),
                                  conv_bn(2 * c, 4 * c, 2), conv_bn(4 * c, 4 * c))
        self.query = nn.Parameter(torch.randn(queries, 4 * c))
        self.att = nn.MultiheadAttention(4 * c, 4, batch_first=True)
        self.box = nn.Linear(4 * c, 4)
        self.mask = nn.Sequential(nn.Linear(4 * c, 256), nn.ReLU(), nn.Linear(256, mask * mask))
        self.register_buffer("anchor", torch.rand(queries, 4))
        self.m = mask

    def forward(self, x):
        f = self.stem(x).flatten(2).transpose(1, 2)
        q, _ = self.att(self.query.expand(x.size(0), -1, -1), f, f, need_weights=False)
        q = q + self.query
        cxywh = torch.sigmoid(torch.logit(self.anchor, 1e-3) + 0.1 * self.box(q))
        return cxywh, torch.sigmoid(3 * self.mask(q)).view(*q.shape[:2], self.m, self.m)


def to_pixels(cxywh, H, W):
    cx, cy, w, h = cxywh.unbind(-1)
    w, h = 0.05 + 0.4 * w, 0.05 + 0.4 * h
    x0, y0 = ((cx - w / 2).clamp(0, 0.95) * W).floor(), ((cy - h / 2).clamp(0, 0.95) * H).floor()
    x1, y1 = ((cx + w / 2).clamp(max=1) * W).ceil(), ((cy + h / 2).clamp(max=1) * H).ceil()
    return torch.stack((x0, y0, torch.maximum(x1, x0 + 2).clamp(max=W), torch.maximum(y1, y0 + 2).clamp(max=H)), -1)


def paste_each(masks, boxes, H, W, host=False):
    canvas = torch.zeros(len(masks), H, W, dtype=torch.bool, device=masks.device)
    rows = boxes.int().tolist() if host else boxes
    for i, box in enumerate(rows):
        x0, y0, x1, y1 = [int(v) for v in box]
        m = F.interpolate(masks[i][None, None], size=(y1 - y0, x1 - x0), mode="bilinear", align_corners=False)
        canvas[i, y0:y1, x0:x1] = m[0, 0] > 0.5
    return canvas


def axis_weights(lo, hi, size, m):
    """Bilinear weights (N, size, m) of a length-m signal stretched over [lo, hi)."""
    px = torch.arange(size, device=lo.device, dtype=lo.dtype)
    src = ((px + 0.5 - lo[:, None]) * (m / (hi - lo))[:, None] - 0.5).clamp(0, m - 1)
    k = torch.arange(m, device=lo.device, dtype=lo.dtype)
    w = (1 - (src[..., None] - k).abs()).clamp(min=0)
    return w * ((px >= lo[:, None]) & (px < hi[:, None]))[..., None]


def paste_batched(masks, boxes, H, W):
    x0, y0, x1, y1 = boxes.unbind(-1)
    wy, wx = axis_weights(y0, y1, H, masks.size(-2)), axis_weights(x0, x1, W, masks.size(-1))
    return torch.bmm(torch.bmm(wy, masks), wx.transpose(1, 2)) > 0.5


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--fix", default="")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--cpu", action="store_true")
    a = p.parse_args()
    fix = set(filter(None, a.fix.split(",")))
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(0)
    batch, side, c, queries = (2, 64, 8, 5) if a.tiny else (8, 640, 64, 100)
    net = QueryMasks(c, queries).to(dev).eval()
    images = torch.randint(0, 256, (4 * batch, 3, side, side), dtype=torch.uint8, device=dev)
    if "batched_paste" in fix:
        paste = paste_batched
    elif "host_boxes" in fix:
        paste = lambda *v: paste_each(*v, host=True)
    else:
        paste = paste_each
    results = []
    n = min(a.steps, 15)
    with torch.inference_mode():
        for step in range(a.steps):
            if step == a.steps - n:
                if dev.type == "cuda":
                    torch.cuda.synchronize()
                t0 = time.perf_counter()
            x = images[(step % 4) * batch:(step % 4 + 1) * batch].float() / 255 - 0.5
            with torch.autocast(dev.type, torch.bfloat16):
                cxywh, masks = net(x)
            boxes, masks = to_pixels(cxywh.float(), side, side), masks.float()
            areas = []
            for i in range(batch):
                full = paste(masks[i], boxes[i], side, side)
                areas.append(full.sum((1, 2)))
            results.append(torch.stack(areas).cpu())
    if dev.type == "cuda":
        torch.cuda.synchronize()
    dt = time.perf_counter() - t0
    print(f"images {len(results) * batch} mean area {torch.cat(results).float().mean().item():.3f}")
    print(f"MEAN_STEP_MS {dt / n * 1e3:.3f}")


if __name__ == "__main__":
    main()
