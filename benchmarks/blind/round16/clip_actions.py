"""Action recognition on clips of mixed aspect ratio: frames of all clips packed into one token sequence."""
import argparse
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def rope_tables(grids, dim, device):
    inv = 1.0 / 10000 ** (torch.arange(0, dim // 2, 2, device=device).float() / (dim // 2))
    rows = []
    for t, h, w in grids:
        hh = torch.arange(h, device=device).view(h, 1).expand(h, w).reshape(-1)
        ww = torch.arange(w, device=device).view(1, w).expand(h, w).reshape(-1)
        rows.append(torch.cat([hh[:, None] * inv, ww[:, None] * inv], -1).repeat(t, 1))
    f = torch.cat(rows)
    f = torch.cat([f, f], -1)
    return f.cos(), f.sin()


class Packing:
    """Sequence lengths of one packed batch: every frame of every clip is its own attention segment."""

    def __init__(self, grids, head_dim, device, dtype, mode):
        self.grids, self.mode = grids, mode
        lengths = torch.tensor([h * w for t, h, w in grids for _ in range(t)])
        cu = F.pad(lengths.cumsum(0), (1, 0)).tolist()
        self.total = cu[-1]
        self.cos, self.sin = rope_tables(grids, head_dim, device)
        self.clip_of = torch.cat([torch.full((t * h * w,), i, device=device) for i, (t, h, w) in enumerate(grids)])
        self.mask = None
        if mode != "per_clip":
            mask = torch.zeros(1, 1, self.total, self.total, dtype=torch.bool, device=device)
            for a, b in zip(cu[:-1], cu[1:]):
                mask[..., a:b, a:b] = True
            if mode == "bias":
                mask = torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, float("-inf"))
            self.mask = mask

    def attend(self, q, k, v):
        # (heads, tokens, head_dim)
        if self.mode != "per_clip":
            return F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=self.mask)[0]
        out, sizes = [], [t * h * w for t, h, w in self.grids]
        for (t, h, w), *qkv in zip(self.grids, *(x.split(sizes, 1) for x in (q, k, v))):
            qkv = [x.unflatten(1, (t, h * w)).transpose(0, 1) for x in qkv]
            out.append(F.scaled_dot_product_attention(*qkv).transpose(0, 1).flatten(1, 2))
        return torch.cat(out, 1)


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x, pack):
        q, k, v = self.qkv(self.n1(x)).view(x.shape[0], 3, self.heads, -1).permute(1, 2, 0, 3)
        q = (q * pack.cos + rotate_half(q) * pack.sin).to(v.dtype)
        k = (k * pack.cos + rotate_half(k) * pack.sin).to(v.dtype)
        x = x + self.proj(pack.attend(q, k, v).transpose(0, 1).reshape(x.shape))
        return x + self.fc2(F.gelu(self.fc1(self.n2(x)), approximate="tanh"))


class ActionNet(nn.Module):
    def __init__(self, dim, depth, heads, patch, classes):
        super().__init__()
        self.embed = nn.Linear(patch, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.norm, self.score, self.head = nn.LayerNorm(dim), nn.Linear(dim, 1), nn.Linear(dim, classes)

    def forward(self, patches, pack):
        x = self.embed(patches)
        for layer in self.layers:
            x = layer(x, pack)
        x = self.norm(x)
        w = torch.sigmoid(self.score(x).float())
        top = torch.zeros(len(pack.grids), x.shape[1], device=x.device).index_add(0, pack.clip_of, x.float() * w)
        low = torch.zeros(len(pack.grids), 1, device=x.device).index_add(0, pack.clip_of, w)
        return self.head(top / (low + 1e-6))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=40)
    ap.add_argument("--fix", default="")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    args = ap.parse_args()
    device = torch.device("cpu" if args.cpu else "cuda")
    mode = "per_clip" if "per_clip" in args.fix else "bias" if "bias_once" in args.fix else "segments"
    torch.manual_seed(0)
    random.seed(0)
    dtype = torch.float32 if args.cpu else torch.bfloat16
    if args.tiny:
        dim, depth, heads, patch, grids = 64, 2, 4, 48, [(2, 4, 4), (2, 3, 5), (2, 6, 3)]
    else:
        dim, depth, heads, patch = 1024, 6, 16, 1176
        grids = [(8, 16, 16), (8, 14, 18), (8, 18, 14), (8, 12, 22), (8, 22, 12)]
    net = ActionNet(dim, depth, heads, patch, 174).to(device)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-4, weight_decay=0.05, fused=not args.cpu)
    tokens = sum(t * h * w for t, h, w in grids)
    pool = [torch.randn(tokens, patch, device=device, dtype=dtype) for _ in range(4)]
    for step in range(args.steps):
        if step == args.steps // 2:
            if not args.cpu:
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        batch = random.sample(grids, len(grids))
        labels = torch.randint(0, 174, (len(batch),), device=device)
        with torch.autocast(device.type, torch.bfloat16, enabled=not args.cpu):
            pack = Packing(batch, dim // heads, device, dtype, mode)
            loss = F.cross_entropy(net(pool[step % len(pool)], pack), labels)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
    if not args.cpu:
        torch.cuda.synchronize()
    print("MEAN_STEP_MS %.3f" % ((time.perf_counter() - t0) / (args.steps - args.steps // 2) * 1e3))
    print("loss %.5f" % loss.item())


if __name__ == "__main__":
    main()
