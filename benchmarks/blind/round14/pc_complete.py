"""Point cloud completion: partial scan in, full shape out, Chamfer loss."""
import argparse
import time

import torch
import torch.nn as nn

torch.backends.cuda.matmul.allow_tf32 = True


class Completer(nn.Module):
    def __init__(self, width, out_points):
        super().__init__()
        self.a = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 2 * width))
        self.b = nn.Sequential(nn.Linear(4 * width, 4 * width), nn.ReLU(), nn.Linear(4 * width, 8 * width))
        self.dec = nn.Sequential(nn.Linear(8 * width, 8 * width), nn.ReLU(), nn.Linear(8 * width, 8 * width), nn.ReLU(),
                                 nn.Linear(8 * width, out_points * 3))

    def forward(self, x):
        f = self.a(x)
        g = f.amax(1, keepdim=True).expand_as(f)
        code = self.b(torch.cat([f, g], -1)).amax(1)
        return self.dec(code).view(len(x), -1, 3)


def chamfer(p, q):
    """Symmetric Chamfer distance between clouds p (N, 3) and q (M, 3)."""
    d = torch.cdist(p, q)
    return d.amin(-1).mean(-1) + d.amin(-2).mean(-1)


def completion_loss(pred, full):
    dists = []
    for p, q in zip(pred, full):
        dists.append(chamfer(p, q))
    return torch.stack(dists).mean()


def completion_loss_batched(pred, full):
    return chamfer(pred, full).mean()


def shapes(n, points, device):
    """Random superellipsoids; the scan sees the half with x > 0."""
    v = torch.randn(n, points, 3, device=device)
    v = v / v.norm(dim=-1, keepdim=True)
    full = v.sign() * v.abs().pow(0.5 + torch.rand(n, 1, 1, device=device)) * (0.5 + torch.rand(n, 1, 3, device=device))
    order = full[..., 0].argsort(dim=1, descending=True)[:, :points // 2]
    return full.gather(1, order.unsqueeze(-1).expand(-1, -1, 3)), full


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--fix", default="")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    a = ap.parse_args()
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(9)
    batch, points, width = (3, 32, 8) if a.tiny else (96, 1024, 64)
    model = Completer(width, points).to(dev)
    opt = torch.optim.Adam(model.parameters(), 1e-4, fused=not a.cpu)
    criterion = completion_loss_batched if "batched_chamfer" in a.fix.split(",") else completion_loss
    partial, full = shapes(batch * 10, points, dev)
    sync = torch.cuda.synchronize if dev.type == "cuda" else (lambda: None)
    tail = max(1, a.steps // 2)
    for step in range(a.steps):
        if step == a.steps - tail:
            sync()
            t0 = time.perf_counter()
        s = slice(step % 10 * batch, (step % 10 + 1) * batch)
        loss = criterion(model(partial[s]), full[s])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0:
            print(f"step {step} cd {loss.item():.5f}")
    sync()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / tail * 1e3:.3f}")
    print(f"final {loss.item():.5f}")


if __name__ == "__main__":
    main()
