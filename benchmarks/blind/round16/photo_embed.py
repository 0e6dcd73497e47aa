"""Photo embedding service: a wide parallel-block ViT turns batches of uploads into unit vectors for the index."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class ParallelBlock(nn.Module):
    """Attention and MLP side by side behind one norm and one input projection."""

    def __init__(self, dim, heads, ratio=4):
        super().__init__()
        self.heads, self.dim, self.hidden = heads, dim, ratio * dim
        self.norm = nn.LayerNorm(dim)
        self.w_in = nn.Linear(dim, 3 * dim + self.hidden, bias=False)
        self.w_attn = nn.Linear(dim, dim, bias=False)
        self.w_mlp = nn.Linear(self.hidden, dim)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v, h = self.w_in(self.norm(x)).split([self.dim] * 3 + [self.hidden], -1)
        q, k, v = [t.reshape(b, n, self.heads, -1).transpose(1, 2) for t in (q, k, v)]
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, -1)
        return x + self.w_attn(a) + self.w_mlp(F.gelu(h))


class PhotoEncoder(nn.Module):
    def __init__(self, dim, depth, heads, image, patch, out):
        super().__init__()
        self.patch = patch
        self.stem = nn.Linear(3 * patch * patch, dim)
        self.pos = nn.Parameter(torch.empty(1, (image // patch) ** 2, dim))
        self.blocks = nn.ModuleList([ParallelBlock(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, out, bias=False)
        self.register_buffer("mean", torch.tensor([123.7, 116.3, 103.5]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([58.4, 57.1, 57.4]).view(1, 3, 1, 1))
        nn.init.normal_(self.pos, std=0.02)

    def patches(self, photos):
        x = (photos.to(self.mean.dtype) - self.mean) / self.std
        b, c, h, w = x.shape
        p = self.patch
        x = x.view(b, c, h // p, p, w // p, p).permute(0, 2, 4, 1, 3, 5)
        return x.reshape(b, (h // p) * (w // p), c * p * p)

    def forward(self, photos):
        x = self.stem(self.patches(photos)) + self.pos
        for blk in self.blocks:
            x = blk(x)
        return F.normalize(self.head(self.norm(x).mean(1)).float(), dim=-1)


class UploadQueue:
    """Decoded uploads wait in page-locked slots; the next batch is on its way while one is encoded."""

    def __init__(self, slots, batch, image, device):
        g = torch.Generator().manual_seed(7)
        self.slots = [torch.randint(0, 256, (batch, 3, image, image), dtype=torch.uint8, generator=g) for _ in range(slots)]
        self.device = device
        self.side = None
        if device.type == "cuda":
            self.slots = [s.pin_memory() for s in self.slots]
            self.side = torch.cuda.Stream()
        self.turn = 0
        self.upcoming = self.fetch()

    def fetch(self):
        slot = self.slots[self.turn % len(self.slots)]
        self.turn += 1
        if self.side is None:
            return slot
        with torch.cuda.stream(self.side):
            return slot.to(self.device, non_blocking=True)

    def get(self):
        if self.side is not None:
            torch.cuda.current_stream().wait_stream(self.side)
            self.upcoming.record_stream(torch.cuda.current_stream())
        ready, self.upcoming = self.upcoming, self.fetch()
        return ready


def build(args, device):
    dim, depth, heads, image, out = (64, 2, 4, 56, 32) if args.tiny else (6144, 6, 48, 224, 1024)
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    with torch.device(device):
        model = PhotoEncoder(dim, depth, heads, image, 14, out)
    torch.set_default_dtype(torch.float32)
    return model.eval().requires_grad_(False), image, out


@torch.inference_mode()
def serve(args):
    device = torch.device("cpu" if args.cpu else "cuda")
    model, image, out = build(args, device)
    batch = 4 if args.tiny else 32
    queue = UploadQueue(4, batch, image, device)
    index = torch.zeros(args.steps * batch, out, device=device)
    half = args.steps // 2
    for n in range(args.steps):
        if n == half:
            if device.type == "cuda":
                torch.cuda.synchronize()
            clock = time.perf_counter()
        index[n * batch:(n + 1) * batch] = model(queue.get())
    if device.type == "cuda":
        torch.cuda.synchronize()
    print("MEAN_STEP_MS %.3f" % ((time.perf_counter() - clock) * 1000 / (args.steps - half)))
    probe = index[:batch] @ index[-batch:].T
    print("mean similarity first/last batch %.5f" % probe.mean().item())


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=40)
    cli.add_argument("--fix", default="")
    cli.add_argument("--tiny", action="store_true")
    cli.add_argument("--cpu", action="store_true")
    serve(cli.parse_args())
