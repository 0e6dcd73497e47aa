"""NeRF on a synthetic scene: random rays, stratified samples, an 8-layer MLP, volume rendering."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def encode(x, bands):
    f = 2.0 ** torch.arange(bands, device=x.device)
    a = (x[..., None] * f).flatten(-2)
    return torch.cat([x, a.sin(), a.cos()], -1)


class Field(nn.Module):
    def __init__(self, width=256, depth=8):
        super().__init__()
        d_pos, d_dir = 3 + 3 * 2 * 10, 3 + 3 * 2 * 4
        self.skip = depth // 2
        self.trunk = nn.ModuleList(
            nn.Linear(d_pos if k == 0 else width + (d_pos if k == self.skip else 0), width) for k in range(depth))
        self.sigma = nn.Linear(width, 1)
        self.feat = nn.Linear(width, width)
        self.view = nn.Linear(width + d_dir, width // 2)
        self.rgb = nn.Linear(width // 2, 3)

    def forward(self, pts, dirs):
        p = encode(pts, 10)
        h = p
        for k, lin in enumerate(self.trunk):
            if k == self.skip:
                h = torch.cat([h, p], -1)
            h = F.relu(lin(h), inplace=True)
        sigma = F.softplus(self.sigma(h)).squeeze(-1)
        h = torch.cat([self.feat(h), encode(dirs, 4)], -1)
        return sigma, self.rgb(F.relu(self.view(h), inplace=True)).sigmoid()


def render(field, origins, dirs, samples, near=2.0, far=6.0):
    n = len(origins)
    edges = torch.linspace(near, far, samples + 1, device=origins.device)
    z = edges[:-1] + torch.rand(n, samples, device=origins.device) * (edges[1] - edges[0])
    pts = origins[:, None] + dirs[:, None] * z[..., None]
    sigma, rgb = field(pts, dirs[:, None].expand_as(pts))
    sigma, rgb = sigma.float(), rgb.float()
    delta = torch.cat([z[:, 1:] - z[:, :-1], torch.full_like(z[:, :1], 0.1)], 1)
    tau = sigma * delta
    trans = torch.exp(-(tau.cumsum(1) - tau))
    w = trans * (1 - torch.exp(-tau))
    return (w[..., None] * rgb).sum(1)


def scene(n, dev):
    o = F.normalize(torch.randn(n, 3, device=dev), dim=-1) * 4
    d = F.normalize(-o + 0.6 * torch.randn(n, 3, device=dev), dim=-1)
    b = (o * d).sum(-1)
    hit = b * b - (o * o).sum(-1) + 1.0 > 0
    colour = torch.where(hit[:, None], 0.5 + 0.5 * d, torch.zeros_like(d))
    return o, d, colour


def train(args):
    fix = set(filter(None, args.fix.split(",")))
    cuda = not args.cpu
    dev = torch.device("cuda" if cuda else "cpu")
    if "tf32" in fix:
        torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    pool, rays, samples, width = (200, 16, 8, 16) if args.tiny else (3_000_000, 4096, 128, 256)
    origins, dirs, colours = scene(pool, dev)
    field = Field(width).to(dev)
    opt = torch.optim.Adam(field.parameters(), 5e-4, fused=True)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9999)
    window = min(args.steps, max(3, args.steps // 3))
    for it in range(args.steps):
        if it == args.steps - window:
            if cuda:
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        idx = torch.randint(0, pool, (rays,), device=dev)
        with torch.autocast(dev.type, torch.bfloat16, enabled="amp" in fix):
            pred = render(field, origins[idx], dirs[idx], samples)
        loss = F.mse_loss(pred, colours[idx])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        if it % 100 == 0:
            print(f"iter {it} psnr {-10 * torch.log10(loss.detach()).item():.2f}")
    if cuda:
        torch.cuda.synchronize()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / window * 1e3:.3f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="tf32, amp")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    train(ap.parse_args())
