"""Part labels for point clouds: EdgeConv layers on neighbourhoods rebuilt in feature space (dynamic graph CNN)."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--fix", default="")
parser.add_argument("--device", default="cpu")
opt = parser.parse_args()

CUDA = opt.device == "cuda"
BATCH, POINTS, K, PARTS = (32, 2048, 20, 6) if CUDA else (4, 512, 12, 6)
CHANNELS = (64, 64, 128) if CUDA else (32, 32, 64)


def squared_distance(x):
    sq = x.square().sum(-1)
    return torch.baddbmm(sq[:, None, :] + sq[:, :, None], x, x.transpose(1, 2), alpha=-2)


def neighbours(x, k):
    """Indices of the k closest points of each point, into the flattened batch."""
    with torch.no_grad():
        dist = squared_distance(x)
        if opt.fix == "topk":
            idx = dist.topk(k, dim=-1, largest=False, sorted=False).indices
        elif opt.fix == "half":
            idx = dist.bfloat16().argsort(dim=-1)[:, :, :k]
        else:
            idx = dist.argsort(dim=-1)[:, :, :k]
        base = torch.arange(x.shape[0], device=x.device).view(-1, 1, 1) * x.shape[1]
        return idx + base


class EdgeConv(nn.Module):
    """max over j of act(norm(W [x_i, x_j - x_i])); the linear map is applied to points before they are paired."""

    def __init__(self, cin, cout):
        super().__init__()
        self.centre = nn.Linear(cin, cout)
        self.offset = nn.Linear(cin, cout, bias=False)
        self.norm = nn.LayerNorm(cout)

    def forward(self, x):
        idx = neighbours(x, K)
        off = self.offset(x)
        near = F.embedding(idx, off.flatten(0, 1))
        return F.leaky_relu(self.norm(self.centre(x) - off + near.amax(2)), 0.2)


class PartNet(nn.Module):
    def __init__(self):
        super().__init__()
        dims = (3,) + CHANNELS
        self.edges = nn.ModuleList(EdgeConv(a, b) for a, b in zip(dims, dims[1:]))
        self.globe = nn.Linear(sum(CHANNELS), 256)
        self.head = nn.Sequential(nn.Linear(sum(CHANNELS) + 256, 128), nn.LeakyReLU(0.2), nn.Linear(128, PARTS))

    def forward(self, pts):
        feats = []
        x = pts
        for layer in self.edges:
            x = layer(x)
            feats.append(x)
        local = torch.cat(feats, -1)
        world = self.globe(local).amax(1, keepdim=True).expand(-1, local.shape[1], -1)
        return self.head(torch.cat([local, world], -1))


def make_shapes(n):
    """Each object is a handful of ellipsoids; the part label is the ellipsoid a point lies on."""
    g = torch.Generator().manual_seed(2)
    label = torch.randint(PARTS, (n, POINTS), generator=g)
    direction = F.normalize(torch.randn(n, POINTS, 3, generator=g), dim=-1)
    centres = torch.randn(n, PARTS, 3, generator=g)
    axes = 0.2 + 0.4 * torch.rand(n, PARTS, 3, generator=g)
    pick = label[..., None].expand(-1, -1, 3)
    pts = centres.gather(1, pick) + axes.gather(1, pick) * direction
    return pts.to(opt.device), label.to(opt.device)


def augment(pts):
    scale = 0.8 + 0.4 * torch.rand(len(pts), 1, 3, device=pts.device)
    return pts * scale + 0.01 * torch.randn_like(pts)


torch.manual_seed(0)
clouds, labels = make_shapes(256)
model = PartNet().to(opt.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, opt.steps)

for step in range(opt.steps):
    if step == opt.steps // 3:
        if CUDA:
            torch.cuda.synchronize()
        t0 = time.perf_counter()
    rows = torch.randint(len(clouds), (BATCH,), device=opt.device)
    logits = model(augment(clouds[rows]))
    loss = F.cross_entropy(logits.flatten(0, 1), labels[rows].flatten(), label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()

if CUDA:
    torch.cuda.synchronize()
total = time.perf_counter() - t0
print(f"loss {loss.item():.4f} accuracy {(logits.argmax(-1) == labels[rows]).float().mean().item():.3f}")
print(f"mean step ms {total / (opt.steps - opt.steps // 3) * 1e3:.3f}")
