"""Open-vocabulary recognition: image tower tuned against the class prompts of a fixed text tower."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_float32_matmul_precision("high")


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc1, self.fc2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.heads = heads

    def forward(self, x, causal=False):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x))))


class TextTower(nn.Module):
    def __init__(self, vocab, ctx, d, layers, heads, out):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Parameter(0.01 * torch.randn(ctx, d))
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.ln, self.out = nn.LayerNorm(d), nn.Linear(d, out, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos
        for b in self.blocks:
            x = b(x, causal=True)
        return F.normalize(self.out(self.ln(x[:, -1])), dim=-1)


class ImageTower(nn.Module):
    def __init__(self, size, patch, d, layers, heads, out):
        super().__init__()
        self.patch = nn.Conv2d(3, d, patch, patch)
        self.pos = nn.Parameter(0.01 * torch.randn((size // patch) ** 2, d))
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.ln, self.out = nn.LayerNorm(d), nn.Linear(d, out, bias=False)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.pos
        for b in self.blocks:
            x = b(x)
        return F.normalize(self.out(self.ln(x).mean(1)), dim=-1)


class OpenVocab(nn.Module):
    def __init__(self, image, text, prompts):
        super().__init__()
        self.image, self.text = image, text.requires_grad_(False).eval()
        self.register_buffer("prompts", prompts)
        self.scale = nn.Parameter(torch.tensor(2.6))
        self.classes = None

    @torch.no_grad()
    def class_embeddings(self):
        return self.text(self.prompts)

    def forward(self, images):
        emb = self.image(images)
        cls = self.class_embeddings() if self.classes is None else self.classes
        return self.scale.exp() * emb @ cls.t()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=30)
    ap.add_argument("--fix", default="")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    a = ap.parse_args()
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(21)
    if a.tiny:
        size, patch, batch, ncls, ctx, d, dt, li, lt, out = 32, 16, 2, 5, 6, 16, 16, 1, 1, 8
    else:
        size, patch, batch, ncls, ctx, d, dt, li, lt, out = 224, 16, 128, 1203, 48, 384, 512, 8, 12, 512
    image = ImageTower(size, patch, d, li, max(1, d // 64), out)
    text = TextTower(8192 if not a.tiny else 50, ctx, dt, lt, max(1, dt // 64), out)
    prompts = torch.randint(0, 50 if a.tiny else 8192, (ncls, ctx))
    model = OpenVocab(image, text, prompts).to(dev)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-4, fused=not a.cpu)
    images = torch.randn(batch * 4, 3, size, size, device=dev)
    labels = torch.randint(0, ncls, (batch * 4,), device=dev)
    amp = lambda: torch.autocast(dev.type, torch.bfloat16)
    if "cache_classes" in a.fix.split(","):
        with amp():
            model.classes = model.class_embeddings()
    sync = torch.cuda.synchronize if dev.type == "cuda" else (lambda: None)
    tail = max(1, a.steps // 2)
    for step in range(a.steps):
        if step == a.steps - tail:
            sync()
            t0 = time.perf_counter()
        s = slice(step % 4 * batch, (step % 4 + 1) * batch)
        with amp():
            loss = F.cross_entropy(model(images[s]), labels[s])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    sync()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / tail * 1e3:.3f}")
    print(f"final {loss.item():.5f}")


if __name__ == "__main__":
    main()
