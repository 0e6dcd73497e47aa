"""Text-conditioned latent denoiser (DiT blocks with cross attention), rectified flow, averaged weights."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, ctx):
        b, n, d = x.shape
        q = self.q(x).view(b, n, self.heads, -1).transpose(1, 2)
        k = self.k(ctx).view(b, ctx.shape[1], self.heads, -1).transpose(1, 2)
        v = self.v(ctx).view(b, ctx.shape[1], self.heads, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(b, n, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ada = nn.Linear(dim, 6 * dim)
        self.norm1 = nn.LayerNorm(dim, elementwise_affine=False)
        self.self_attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.cross_attn = Attention(dim, heads)
        self.norm3 = nn.LayerNorm(dim, elementwise_affine=False)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim))
        nn.init.zeros_(self.ada.weight)
        nn.init.zeros_(self.ada.bias)

    def forward(self, x, cond, text):
        s1, b1, g1, s2, b2, g2 = self.ada(F.silu(cond)).unsqueeze(1).chunk(6, dim=-1)
        h = self.norm1(x) * (1 + s1) + b1
        x = x + g1 * self.self_attn(h, h)
        x = x + self.cross_attn(self.norm2(x), text)
        h = self.norm3(x) * (1 + s2) + b2
        return x + g2 * self.mlp(h)


class Denoiser(nn.Module):
    def __init__(self, channels=4, size=16, patch=2, dim=384, depth=24, heads=6, text_dim=512):
        super().__init__()
        self.dim, self.patch, self.size = dim, patch, size
        self.embed = nn.Conv2d(channels, dim, patch, stride=patch)
        self.pos = nn.Parameter(torch.randn(1, (size // patch) ** 2, dim) * 0.02)
        self.time = nn.Sequential(nn.Linear(256, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.text = nn.Linear(text_dim, dim)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, channels * patch * patch)
        self.register_buffer("freqs", torch.exp(-torch.arange(128) / 128 * 9.21), persistent=False)

    def forward(self, x, t, text):
        angles = 1000 * t[:, None] * self.freqs
        cond = self.time(torch.cat([angles.cos(), angles.sin()], dim=-1))
        text = self.text(text)
        x = self.embed(x).flatten(2).transpose(1, 2) + self.pos
        for block in self.blocks:
            x = block(x, cond, text)
        x = self.head(self.norm(x)).transpose(1, 2)
        return F.fold(x.float(), self.size, self.patch, stride=self.patch)


def make_data(n, device, text_len):
    g = torch.Generator().manual_seed(1)
    latents = torch.randn(n, 4, 16, 16, generator=g).to(device)
    text = torch.randn(n, text_len, 512, generator=g).to(device)
    return latents, text


def flow_loss(model, x, text, device_type):
    noise = torch.randn_like(x)
    t = torch.rand(x.shape[0], device=x.device)
    tt = t.view(-1, 1, 1, 1)
    with torch.autocast(device_type, dtype=torch.bfloat16, enabled=torch.cuda.is_available()):
        pred = model((1 - tt) * x + tt * noise, t, text)
    return F.mse_loss(pred.float(), noise - x)


def build(device):
    torch.manual_seed(0)
    return Denoiser(depth=24 if device.type == "cuda" else 2).to(device)


def sizes(device):
    return dict(n=4096, batch=256, text_len=24) if device.type == "cuda" else dict(n=32, batch=4, text_len=4)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--ema", type=float, default=0.9995)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--log-every", type=int, default=100)
    args = parser.parse_args()

    torch.set_float32_matmul_precision("high" if torch.cuda.is_available() else "highest")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cfg = sizes(device)
    latents, text = make_data(cfg["n"], device, cfg["text_len"])

    model = build(device)
    ema = AveragedModel(model, avg_fn=get_ema_avg_fn(args.ema))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)

    for step in range(args.steps):
        idx = torch.randint(cfg["n"], (cfg["batch"],), device=device)
        loss = flow_loss(model, latents[idx], text[idx], device.type)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        ema.update_parameters(model)
        if step % args.log_every == 0:
            print(f"step {step:6d}  loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
