"""Answer poster requests with a small text-conditioned diffusion model (DDIM, guidance)."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, MAXLEN, TEXT_DIM = 4000, 48, 256
T_TRAIN, T_SAMPLE = 1000, 10


class TextEncoder(nn.Module):
    def __init__(self, layers=6):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, TEXT_DIM)
        self.pos = nn.Parameter(torch.randn(MAXLEN, TEXT_DIM) * 0.02)
        layer = nn.TransformerEncoderLayer(TEXT_DIM, 4, 4 * TEXT_DIM, dropout=0.0,
                                           batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, ids):
        return self.body(self.tok(ids) + self.pos)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1 = nn.Conv2d(c, c, 3, padding=1)
        self.conv2 = nn.Conv2d(c, c, 3, padding=1)
        self.time = nn.Linear(64, c)
        self.q, self.kv = nn.Linear(c, c), nn.Linear(TEXT_DIM, 2 * c)

    def forward(self, x, temb, text):
        h = self.conv1(F.silu(x)) + self.time(temb)[:, :, None, None]
        x = x + self.conv2(F.silu(h))
        b, c, hh, ww = x.shape
        k, v = self.kv(text).chunk(2, dim=-1)
        q = self.q(x.flatten(2).transpose(1, 2))
        a = F.scaled_dot_product_attention(q, k, v)
        return x + a.transpose(1, 2).view(b, c, hh, ww)


class Denoiser(nn.Module):
    def __init__(self, c=48):
        super().__init__()
        self.inp, self.out = nn.Conv2d(4, c, 3, padding=1), nn.Conv2d(c, 4, 3, padding=1)
        self.blocks = nn.ModuleList(Block(c) for _ in range(3))

    def forward(self, x, t, text):
        freq = torch.exp(-torch.arange(32) / 32 * 9.2)
        ang = t * freq
        temb = torch.cat([ang.sin(), ang.cos()]).expand(x.shape[0], 64)
        h = self.inp(x)
        for block in self.blocks:
            h = block(h, temb, text)
        return self.out(h)


class Pipeline:
    def __init__(self, keep_text):
        self.text, self.unet = TextEncoder().eval(), Denoiser().eval()
        self.alpha = torch.cumprod(1 - torch.linspace(1e-4, 0.02, T_TRAIN), 0)
        self.keep_text = keep_text

    def embed(self, ids):
        return self.text(torch.cat([torch.zeros_like(ids), ids]))

    @torch.inference_mode()
    def __call__(self, ids, noise, scale=3.0):
        ts = torch.linspace(T_TRAIN - 1, 0, T_SAMPLE + 1).long()
        text = self.embed(ids) if self.keep_text else None
        x = noise
        for t, prev in zip(ts[:-1], ts[1:]):
            cond = text if self.keep_text else self.embed(ids)
            empty, full = self.unet(torch.cat([x, x]), t.float(), cond).chunk(2)
            eps = empty + scale * (full - empty)
            a, b = self.alpha[t], self.alpha[prev]
            x0 = ((x - (1 - a).sqrt() * eps) / a.sqrt()).clamp(-3, 3)
            x = b.sqrt() * x0 + (1 - b).sqrt() * eps
        return x


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=90)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(5)

    pipe = Pipeline(keep_text=args.fix)
    times = []
    for step in range(args.steps):
        ids = torch.randint(1, VOCAB, (2, MAXLEN), generator=gen)
        noise = torch.randn(2, 4, 24, 24, generator=gen)
        t0 = time.perf_counter()
        latents = pipe(ids, noise)
        image = (latents[:, :3].clamp(-1, 1) * 127.5 + 127.5).to(torch.uint8)
        times.append(time.perf_counter() - t0)
        if step % 10 == 0 or step == args.steps - 1:
            print(f"request {step} latent std {latents.std():.6f} pixel mean {image.float().mean():.4f}")
    tail = times[len(times) // 3:]
    print(f"mean step ms {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
