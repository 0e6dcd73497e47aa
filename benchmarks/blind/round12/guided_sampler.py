"""Text-to-image latent sampling with classifier-free guidance (DDIM, transformer denoiser)."""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attn(nn.Module):
    def __init__(self, d, d_ctx, heads):
        super().__init__()
        self.heads = heads
        self.q, self.kv, self.o = nn.Linear(d, d), nn.Linear(d_ctx, 2 * d), nn.Linear(d, d)

    def forward(self, x, ctx):
        b, t, d = x.shape
        q = self.q(x).view(b, t, self.heads, -1).transpose(1, 2)
        k, v = self.kv(ctx).view(b, ctx.size(1), 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))


class EncLayer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = Attn(d, d, heads)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        h = self.n1(x)
        x = x + self.attn(h, h)
        return x + self.mlp(self.n2(x))


class TextEncoder(nn.Module):
    def __init__(self, vocab, d, layers, heads, length):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Parameter(torch.randn(length, d) * 0.02)
        self.layers = nn.ModuleList(EncLayer(d, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d)

    def forward(self, ids):
        x = self.tok(ids) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class DenoiseLayer(nn.Module):
    def __init__(self, d, d_ctx, heads):
        super().__init__()
        self.n1, self.n2, self.n3 = (nn.LayerNorm(d, elementwise_affine=False) for _ in range(3))
        self.self_attn, self.cross = Attn(d, d, heads), Attn(d, d_ctx, heads)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.mod = nn.Linear(d, 2 * d)

    def forward(self, x, temb, ctx):
        shift, scale = self.mod(temb).unsqueeze(1).chunk(2, -1)
        h = self.n1(x) * (1 + scale) + shift
        x = x + self.self_attn(h, h)
        x = x + self.cross(self.n2(x), ctx)
        return x + self.mlp(self.n3(x))


class Denoiser(nn.Module):
    def __init__(self, c, d, d_ctx, layers, heads, tokens):
        super().__init__()
        self.inp, self.out = nn.Linear(c, d), nn.Linear(d, c)
        self.pos = nn.Parameter(torch.randn(tokens, d) * 0.02)
        self.time = nn.Sequential(nn.Linear(128, d), nn.SiLU(), nn.Linear(d, d))
        self.layers = nn.ModuleList(DenoiseLayer(d, d_ctx, heads) for _ in range(layers))

    def forward(self, z, t, ctx):
        f = torch.exp(-math.log(1e4) * torch.arange(64, device=z.device) / 64)
        e = t[:, None] * f
        temb = self.time(torch.cat((e.sin(), e.cos()), -1).to(z.dtype))
        x = self.inp(z) + self.pos
        for layer in self.layers:
            x = layer(x, temb, ctx)
        return self.out(x)


class Pipeline:
    def __init__(self, encoder, denoiser, guidance, n_steps, null_ids, once, batched):
        self.enc, self.net, self.g, self.n = encoder, denoiser, guidance, n_steps
        self.null_ids, self.once, self.batched = null_ids, once, batched
        self.abar = torch.cos(torch.linspace(0.02, 1.0, n_steps + 1) * math.pi / 2).square().flip(0)

    def embed(self, ids):
        return self.enc(ids), self.enc(self.null_ids.expand_as(ids))

    def eps(self, z, t, cond, uncond):
        if self.batched:
            e, e0 = self.net(torch.cat((z, z)), torch.cat((t, t)), torch.cat((cond, uncond))).chunk(2)
        else:
            e, e0 = self.net(z, t, cond), self.net(z, t, uncond)
        return e0 + self.g * (e - e0)

    @torch.inference_mode()
    def __call__(self, ids, z):
        ctx = self.embed(ids) if self.once else None
        for i in range(self.n):
            cond, uncond = ctx if ctx is not None else self.embed(ids)
            t = torch.full((z.size(0),), 1000.0 * (1 - i / self.n), device=z.device)
            e = self.eps(z, t, cond, uncond)
            a, b = float(self.abar[i].clamp(min=0.01)), float(self.abar[i + 1].clamp(max=0.999))
            x0 = (z - math.sqrt(1 - a) * e) / math.sqrt(a)
            z = math.sqrt(b) * x0.clamp(-4, 4) + math.sqrt(1 - b) * e
            yield z


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=75)
    p.add_argument("--fix", default="")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--cpu", action="store_true")
    a = p.parse_args()
    fix = set(filter(None, a.fix.split(",")))
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(0)
    cfg = dict(b=2, vocab=50, de=32, le=2, L=8, c=4, d=16, ld=2, tok=9) if a.tiny else \
        dict(b=16, vocab=32000, de=2048, le=16, L=128, c=16, d=768, ld=10, tok=256)
    dtype = torch.float32 if a.cpu else torch.bfloat16
    with dev:
        torch.set_default_dtype(dtype)
        enc = TextEncoder(cfg["vocab"], cfg["de"], cfg["le"], max(1, cfg["de"] // 64), cfg["L"]).eval()
        net = Denoiser(cfg["c"], cfg["d"], cfg["de"], cfg["ld"], max(1, cfg["d"] // 64), cfg["tok"]).eval()
        torch.set_default_dtype(torch.float32)
        null = torch.zeros(1, cfg["L"], dtype=torch.long)
    pipe = Pipeline(enc, net, 5.0, 25, null, "encode_once" in fix, "batched_guidance" in fix)
    n, done = min(a.steps, 25), 0
    gen = torch.Generator(device=dev).manual_seed(1)
    while done < a.steps:
        ids = torch.randint(1, cfg["vocab"], (cfg["b"], cfg["L"]), device=dev, generator=gen)
        z = torch.randn(cfg["b"], cfg["tok"], cfg["c"], device=dev, generator=gen).to(dtype)
        if done == a.steps - n:
            if dev.type == "cuda":
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        for z in pipe(ids, z):
            done += 1
            if done == a.steps:
                break
            if done == a.steps - n and done % 25:
                if dev.type == "cuda":
                    torch.cuda.synchronize()
                t0 = time.perf_counter()
    if dev.type == "cuda":
        torch.cuda.synchronize()
    dt = time.perf_counter() - t0
    print(f"final latent std {z.float().std().item():.5f}")
    print(f"MEAN_STEP_MS {dt / n * 1e3:.3f}")


if __name__ == "__main__":
    main()
