"""Differentially private training of a lesion classifier (DP-SGD: clip each example, add noise)."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

torch.backends.cuda.matmul.allow_tf32 = True


def block(cin, cout, stride):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.GroupNorm(8, cout), nn.ReLU())


class LesionNet(nn.Module):
    def __init__(self, width, classes=7):
        super().__init__()
        self.body = nn.Sequential(block(3, width, 2), block(width, width, 1), block(width, 2 * width, 2),
                                  block(2 * width, 2 * width, 1), block(2 * width, 4 * width, 2))
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, x):
        return self.fc(self.body(x).mean((2, 3)))


class PrivateSGD:
    """Clipped and noised gradients of a batch; `per_example` yields the gradient of each example."""

    def __init__(self, model, clip, sigma, lr, momentum=0.9):
        self.model, self.clip, self.sigma = model, clip, sigma
        self.params = list(model.parameters())
        self.opt = torch.optim.SGD(self.params, lr, momentum)

    def clipped_sum(self, x, y):
        total = [torch.zeros_like(p) for p in self.params]
        for i in range(len(x)):
            loss = F.cross_entropy(self.model(x[i:i + 1]), y[i:i + 1])
            g = torch.autograd.grad(loss, self.params)
            norm = torch.stack(torch._foreach_norm(g)).norm()
            scale = (self.clip / (norm + 1e-6)).clamp(max=1.0)
            torch._foreach_add_(total, torch._foreach_mul(g, scale))
        return total

    def step(self, x, y):
        total = self.clipped_sum(x, y)
        for p, g in zip(self.params, total):
            p.grad = (g + self.sigma * self.clip * torch.randn_like(g)) / len(x)
        self.opt.step()


class FunctionalPrivateSGD(PrivateSGD):
    def clipped_sum(self, x, y):
        named = {k: p.detach() for k, p in self.model.named_parameters()}

        def one(ps, xi, yi):
            return F.cross_entropy(functional_call(self.model, ps, (xi[None],)), yi[None])

        g = list(vmap(grad(one), in_dims=(None, 0, 0))(named, x, y).values())
        norm = torch.stack([v.flatten(1).norm(dim=1) for v in g]).norm(dim=0)
        scale = (self.clip / (norm + 1e-6)).clamp(max=1.0)
        return [torch.tensordot(scale, v, 1) for v in g]


def images(n, size, device):
    y = torch.randint(0, 7, (n,), device=device)
    base = torch.randn(7, 3, size // 8, size // 8, device=device)
    x = F.interpolate(base[y], size=(size, size), mode="bilinear") + torch.randn(n, 3, size, size, device=device)
    return x, y


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=30)
    ap.add_argument("--fix", default="")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    args = ap.parse_args()
    dev = torch.device("cpu" if args.cpu else "cuda")
    torch.manual_seed(11)
    batch, size, width = (4, 16, 8) if args.tiny else (64, 64, 32)
    net = LesionNet(width).to(dev)
    trainer = (FunctionalPrivateSGD if "vmap_grads" in args.fix.split(",") else PrivateSGD)(net, 1.0, 0.6, 0.05)
    X, Y = images(batch * 16, size, dev)
    cuda = dev.type == "cuda"
    tail = max(1, args.steps // 2)
    for step in range(args.steps):
        if step == args.steps - tail:
            if cuda:
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        pick = torch.randint(0, len(X), (batch,), device=dev)
        trainer.step(X[pick], Y[pick])
    if cuda:
        torch.cuda.synchronize()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / tail * 1e3:.3f}")
    with torch.no_grad():
        print("final", F.cross_entropy(net(X[:256]), Y[:256]).item())
