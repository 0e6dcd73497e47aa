"""A radiance field of an orchard row from posed photos: random pixels, samples along rays, a small MLP."""
import argparse
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXES = ("picked_rays", "cheap_pick")


class Photos:
    """Poses on a circle; colours come from a simple formula of the ray, in place of real pictures."""

    def __init__(self, count, height, width, seed=14):
        self.height, self.width, self.focal = height, width, 0.9 * width
        turn = torch.linspace(0, 2 * math.pi, count + 1)[:-1]
        self.poses = torch.zeros(count, 3, 4)
        self.poses[:, 0, 0], self.poses[:, 0, 2] = turn.cos(), turn.sin()
        self.poses[:, 1, 1] = 1
        self.poses[:, 2, 0], self.poses[:, 2, 2] = -turn.sin(), turn.cos()
        self.poses[:, :, 3] = 3 * self.poses[:, :, 2]
        rng = np.random.default_rng(seed)
        rows = np.linspace(0, 9, height)[:, None, None] + rng.random((1, 1, 3))
        columns = np.linspace(0, 7, width)[None, :, None] * rng.random((1, 1, 3))
        image = (0.5 + 0.5 * np.sin(rows) * np.cos(columns)).astype(np.float32)
        self.images = [torch.from_numpy(np.roll(image, 7 * i, axis=1)) for i in range(count)]


def get_rays(height, width, focal, pose):
    """Origins and directions of the rays through all pixels."""
    j, i = torch.meshgrid(torch.arange(height, dtype=torch.float32), torch.arange(width, dtype=torch.float32),
                          indexing="ij")
    dirs = torch.stack([(i - width * 0.5) / focal, -(j - height * 0.5) / focal, -torch.ones_like(i)], -1)
    rays_d = torch.sum(dirs[..., None, :] * pose[:3, :3], -1)
    return pose[:3, 3].expand(rays_d.shape), rays_d


def get_rays_at(rows, columns, height, width, focal, pose):
    dirs = torch.stack([(columns - width * 0.5) / focal, -(rows - height * 0.5) / focal,
                        -torch.ones(len(rows))], -1)
    rays_d = dirs @ pose[:3, :3].t()
    return pose[:3, 3].expand(rays_d.shape), rays_d


def pick_pixels(rng, many, count, fix):
    if fix:
        return torch.from_numpy(rng.integers(many, size=count))      # a pixel drawn twice does no harm
    return torch.from_numpy(np.random.choice(many, size=count, replace=False))


def ray_batch(photos, rng, count, fix):
    n = int(rng.integers(len(photos.images)))
    image, pose = photos.images[n], photos.poses[n]
    height, width = photos.height, photos.width
    pixel = pick_pixels(rng, height * width, count, fix)
    rows, columns = pixel // width, pixel % width
    if fix == "picked_rays":
        origin, direction = get_rays_at(rows, columns, height, width, photos.focal, pose)
    else:
        rays_o, rays_d = get_rays(height, width, photos.focal, pose)
        origin, direction = rays_o[rows, columns], rays_d[rows, columns]
    return origin, direction, image[rows, columns]


class Field(nn.Module):
    def __init__(self, width, octaves=6):
        super().__init__()
        self.register_buffer("scales", 2.0 ** torch.arange(octaves))
        self.layers = nn.Sequential(nn.Linear(3 + 6 * octaves, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                    nn.Linear(width, 4))

    def forward(self, x):
        angle = (x[..., None, :] * self.scales[:, None]).flatten(-2)
        out = self.layers(torch.cat([x, angle.sin(), angle.cos()], -1))
        return torch.sigmoid(out[..., :3]), F.softplus(out[..., 3])


def render(field, origin, direction, samples, near=1.5, far=4.5):
    depth = torch.linspace(near, far, samples)
    colour, density = field(origin[:, None] + direction[:, None] * depth[:, None])
    step = (far - near) / samples * direction.norm(dim=-1, keepdim=True)
    alpha = 1 - torch.exp(-density * step)
    clear = torch.cumprod(1 - alpha + 1e-8, 1)
    weight = alpha * torch.cat([torch.ones_like(clear[:, :1]), clear[:, :-1]], 1)
    return (weight[..., None] * colour).sum(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--fix", choices=FIXES, default="")
    parser.add_argument("--size", choices=("cpu", "small"), default="cpu")
    args = parser.parse_args()
    height, width, rays, samples, hidden = (480, 640, 256, 24, 64) if args.size == "cpu" else (60, 80, 64, 8, 16)
    torch.manual_seed(1)
    np.random.seed(1)
    rng = np.random.default_rng(1)
    photos = Photos(24, height, width)
    field = Field(hidden)
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-4, fused=True)
    recent, start = 0.0, None
    for step in range(args.steps):
        if step == args.steps // 3:
            start = time.perf_counter()
        origin, direction, colour = ray_batch(photos, rng, rays, args.fix)
        loss = F.mse_loss(render(field, origin, direction, samples), colour)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        recent = 0.9 * recent + 0.1 * loss.item() if step else loss.item()
        if step % 40 == 0:
            print(f"iteration {step} mse {recent:.5f} psnr {-10 * math.log10(recent):.2f}")
    took = time.perf_counter() - start
    print(f"recent loss {recent:.6f}")
    print(f"mean step ms {took * 1e3 / (args.steps - args.steps // 3):.3f}")


if __name__ == "__main__":
    main()
