"""Image-text contrastive pre-training with two transformer towers."""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class NewGELU(nn.Module):
    """GELU as in the original checkpoint."""

    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Block(nn.Module):
    def __init__(self, d, heads, act, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc1, self.act, self.fc2 = nn.Linear(d, 4 * d), act(), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.fc2(self.act(self.fc1(self.ln2(x))))


class ImageTower(nn.Module):
    def __init__(self, side, patch, d, layers, out, act):
        super().__init__()
        self.patch, n = patch, (side // patch) ** 2
        self.inp, self.pos = nn.Linear(3 * patch * patch, d), nn.Parameter(torch.randn(n, d) * 0.02)
        self.blocks = nn.Sequential(*(Block(d, max(1, d // 64), act, False) for _ in range(layers)))
        self.ln, self.out = nn.LayerNorm(d), nn.Linear(d, out, bias=False)

    def forward(self, img):
        x = F.unfold(img, self.patch, stride=self.patch).transpose(1, 2)
        return self.out(self.ln(self.blocks(self.inp(x) + self.pos)).mean(1))


class TextTower(nn.Module):
    def __init__(self, vocab, length, d, layers, out, act):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Parameter(torch.randn(length, d) * 0.02)
        self.blocks = nn.Sequential(*(Block(d, max(1, d // 64), act, True) for _ in range(layers)))
        self.ln, self.out = nn.LayerNorm(d), nn.Linear(d, out, bias=False)

    def forward(self, ids):
        return self.out(self.ln(self.blocks(self.tok(ids) + self.pos))[:, -1])


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
    b, side, patch, di, li, dt_, lt, vocab, length, out = (4, 32, 8, 32, 2, 16, 1, 50, 8, 16) if a.tiny else \
        (192, 224, 16, 768, 12, 512, 6, 32000, 64, 512)
    act = (lambda: nn.GELU(approximate="tanh")) if "builtin_gelu" in fix else NewGELU
    img_net = ImageTower(side, patch, di, li, out, act).to(dev)
    txt_net = TextTower(vocab, length, dt_, lt, out, act).to(dev)
    scale = nn.Parameter(torch.tensor(2.66, device=dev))
    opt = torch.optim.AdamW([*img_net.parameters(), *txt_net.parameters(), scale], 3e-4, fused=True)
    images = torch.randint(0, 256, (4 * b, 3, side, side), dtype=torch.uint8, device=dev)
    texts = torch.randint(0, vocab, (4 * b, length), device=dev)
    target = torch.arange(b, device=dev)

    n = min(a.steps, 15)
    for step in range(a.steps):
        if step == a.steps - n:
            if dev.type == "cuda":
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        idx = torch.randperm(4 * b, device=dev)[:b]
        with torch.autocast(dev.type, torch.bfloat16):
            u = F.normalize(img_net(images[idx] / 127.5 - 1), dim=-1)
            v = F.normalize(txt_net(texts[idx]), dim=-1)
            logits = scale.exp() * (u @ v.t()).float()
            loss = 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if dev.type == "cuda":
        torch.cuda.synchronize()
    dt = time.perf_counter() - t0
    print(f"final loss {loss.item():.5f}")
    print(f"MEAN_STEP_MS {dt / n * 1e3:.3f}")


if __name__ == "__main__":
    main()
