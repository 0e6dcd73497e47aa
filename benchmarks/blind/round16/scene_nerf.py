"""Radiance field of one object from posed 800x800 views: coarse + fine MLP, random rays of one view per iteration."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Embedder(nn.Module):
    def __init__(self, n_freqs):
        super().__init__()
        self.register_buffer("freqs", 2.0 ** torch.arange(n_freqs))
        self.out_dim = 3 + 6 * n_freqs

    def forward(self, x):
        xb = (x[..., None, :] * self.freqs[:, None]).flatten(-2)
        return torch.cat([x, torch.sin(xb), torch.cos(xb)], -1)


class NeRF(nn.Module):
    def __init__(self, D=8, W=256, skip=4):
        super().__init__()
        self.pos, self.dirs, self.skip = Embedder(10), Embedder(4), skip
        cin = self.pos.out_dim
        self.pts_linears = nn.ModuleList(
            [nn.Linear(cin, W)] + [nn.Linear(W + cin if i == skip else W, W) for i in range(D - 1)])
        self.feature, self.alpha = nn.Linear(W, W), nn.Linear(W, 1)
        self.view, self.rgb = nn.Linear(W + self.dirs.out_dim, W // 2), nn.Linear(W // 2, 3)

    def forward(self, pts, viewdirs):
        e = self.pos(pts)
        h = e
        for i, layer in enumerate(self.pts_linears):
            h = F.relu(layer(h))
            if i == self.skip:
                h = torch.cat([e, h], -1)
        d = self.dirs(viewdirs)[:, None].expand(-1, pts.shape[1], -1)
        v = F.relu(self.view(torch.cat([self.feature(h), d], -1)))
        return torch.sigmoid(self.rgb(v)).float(), F.relu(self.alpha(h)).squeeze(-1).float()


def get_rays(H, W, focal, c2w):
    j, i = torch.meshgrid(torch.arange(H, device=c2w.device), torch.arange(W, device=c2w.device), indexing="ij")
    dirs = torch.stack([(i - W * 0.5) / focal, -(j - H * 0.5) / focal, -torch.ones_like(i)], -1)
    rays_d = torch.sum(dirs[..., None, :] * c2w[:3, :3], -1)
    return c2w[:3, -1].expand(rays_d.shape), rays_d


def composite(rgb, sigma, z, rays_d):
    dists = torch.cat([z[:, 1:] - z[:, :-1], torch.full_like(z[:, :1], 1e10)], -1)
    alpha = 1.0 - torch.exp(-sigma * dists * rays_d.norm(dim=-1, keepdim=True))
    trans = torch.cumprod(torch.cat([torch.ones_like(z[:, :1]), 1.0 - alpha + 1e-10], -1), -1)[:, :-1]
    w = alpha * trans
    return (w[..., None] * rgb).sum(1) + (1.0 - w.sum(1, keepdim=True)), w


def sample_pdf(bins, weights, n):
    w = weights + 1e-5
    cdf = torch.cumsum(w / w.sum(-1, keepdim=True), -1)
    cdf = torch.cat([torch.zeros_like(cdf[:, :1]), cdf], -1)
    u = torch.rand(cdf.shape[0], n, device=bins.device)
    hi = torch.searchsorted(cdf, u, right=True).clamp(max=cdf.shape[-1] - 1)
    lo = (hi - 1).clamp(min=0)
    c0, c1, b0, b1 = cdf.gather(1, lo), cdf.gather(1, hi), bins.gather(1, lo), bins.gather(1, hi)
    den = torch.where(c1 - c0 < 1e-5, torch.ones_like(c0), c1 - c0)
    return b0 + (u - c0) / den * (b1 - b0)


def render(coarse, fine, rays_o, rays_d, n_coarse, n_fine, near=2.0, far=6.0):
    dirs = F.normalize(rays_d, dim=-1)
    edges = torch.linspace(near, far, n_coarse + 1, device=rays_o.device)
    z = edges[:-1] + torch.rand(rays_o.shape[0], n_coarse, device=rays_o.device) * (far - near) / n_coarse
    rgb0, w = composite(*coarse(rays_o[:, None] + rays_d[:, None] * z[..., None], dirs), z, rays_d)
    with torch.no_grad():
        z_new = sample_pdf(0.5 * (z[:, 1:] + z[:, :-1]), w[:, 1:-1], n_fine)
        z_all = torch.sort(torch.cat([z, z_new], -1), -1)[0]
    rgb1, _ = composite(*fine(rays_o[:, None] + rays_d[:, None] * z_all[..., None], dirs), z_all, rays_d)
    return rgb0, rgb1


def load_views(n, H, W, device):
    """Rendered sphere-ish blobs on white, cameras on a ring."""
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, H, device=device), torch.linspace(-1, 1, W, device=device), indexing="ij")
    imgs, poses = [], []
    for k in range(n):
        a = 2 * np.pi * k / n
        mask = ((xx ** 2 + yy ** 2) < 0.4).float()[..., None]
        col = torch.stack([0.5 + 0.5 * torch.sin(3 * xx + a), 0.5 + 0.5 * torch.cos(4 * yy), 0.5 + 0 * xx], -1)
        imgs.append(mask * col + 1 - mask)
        c, s = np.cos(a), np.sin(a)
        poses.append([[c, 0, s, 4 * s], [0, 1, 0, 0], [-s, 0, c, 4 * c]])
    return torch.stack(imgs), torch.tensor(poses, dtype=torch.float32, device=device)


def train(args):
    fix = set(args.fix.split(","))
    device = torch.device("cpu" if args.cpu else "cuda")
    torch.manual_seed(0), np.random.seed(0)
    torch.set_float32_matmul_precision("high")
    H, W, N_rand, nc, nf = (40, 40, 64, 8, 8) if args.tiny else (800, 800, 1024, 64, 64)
    images, poses = load_views(4 if args.tiny else 24, H, W, device)
    focal = 1.4 * W
    coarse, fine = [NeRF(W=32 if args.tiny else 256).to(device) for _ in range(2)]
    opt = torch.optim.Adam([*coarse.parameters(), *fine.parameters()], lr=5e-4)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.1 ** (1 / 250000))
    for i in range(args.steps):
        if i == args.steps // 2:
            if device.type == "cuda":
                torch.cuda.synchronize()
            tic = time.time()
        img_i = np.random.randint(len(images))
        rays_o, rays_d = get_rays(H, W, focal, poses[img_i])
        if "device_pick" in fix:
            select_inds = torch.randperm(H * W, device=device)[:N_rand]
        else:
            select_inds = np.random.choice(H * W, size=[N_rand], replace=False)
            select_inds = torch.from_numpy(select_inds).to(device)
        rays_o, rays_d = rays_o.reshape(-1, 3)[select_inds], rays_d.reshape(-1, 3)[select_inds]
        target = images[img_i].reshape(-1, 3)[select_inds]
        with torch.autocast(device.type, torch.bfloat16, enabled="bf16" in fix):
            rgb0, rgb1 = render(coarse, fine, rays_o, rays_d, nc, nf)
        img_loss = F.mse_loss(rgb1, target)
        loss = img_loss + F.mse_loss(rgb0, target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    print("MEAN_STEP_MS %.3f" % ((time.time() - tic) / (args.steps - args.steps // 2) * 1e3))
    print("psnr %.3f" % (-10 * np.log10(img_loss.item())))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--fix", default="")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--cpu", action="store_true")
    train(p.parse_args())
