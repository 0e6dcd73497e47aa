"""Mask-based MVDR beamforming front-end, trained end to end on the enhanced magnitude."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.backends.cuda.matmul.allow_tf32 = True


class MaskNet(nn.Module):
    def __init__(self, freqs, width):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(freqs, width, 5, padding=2), nn.PReLU(),
                                 nn.Conv1d(width, width, 5, padding=4, dilation=2), nn.PReLU(),
                                 nn.Conv1d(width, width, 5, padding=8, dilation=4), nn.PReLU(),
                                 nn.Conv1d(width, 2 * freqs, 1))

    def forward(self, ref):
        m = self.net(torch.log1p(ref.abs())).sigmoid()
        return m.chunk(2, 1)


def covariance(x, mask):
    """x (B, F, M, T) complex, mask (B, F, T) -> (B, F, M, M)"""
    w = mask / mask.sum(-1, keepdim=True).clamp(min=1e-3)
    return (x * w.unsqueeze(2)) @ x.mH


class MVDR(nn.Module):
    def __init__(self, freqs, width, loading=1e-3, solver="inverse"):
        super().__init__()
        self.masks = MaskNet(freqs, width)
        self.loading, self.solver = loading, solver

    def weights(self, phi_s, phi_n):
        m = phi_n.size(-1)
        tr = phi_n.diagonal(dim1=-2, dim2=-1).real.mean(-1)
        eye = torch.eye(m, dtype=phi_n.dtype, device=phi_n.device)
        phi_n = phi_n + (self.loading * tr + 1e-6)[..., None, None] * eye
        if self.solver == "solve":
            num = torch.linalg.solve(phi_n, phi_s)
        else:
            num = torch.linalg.pinv(phi_n) @ phi_s
        lam = num.diagonal(dim1=-2, dim2=-1).sum(-1)
        return num[..., 0] / (lam[..., None] + 1e-6)

    def forward(self, x):
        speech, noise = self.masks(x[:, :, 0])
        w = self.weights(covariance(x, speech), covariance(x, noise))
        return (w.conj().unsqueeze(-2) @ x).squeeze(-2)


def scenes(n, freqs, mics, frames, device):
    """Single source with a random steering vector plus diffuse noise, in the STFT domain."""
    src = torch.randn(n, freqs, 1, frames, dtype=torch.complex64, device=device)
    env = torch.rand(n, 1, 1, frames, device=device).square() * 4
    steer = torch.polar(torch.ones(n, freqs, mics, 1, device=device), 6.28 * torch.rand(n, freqs, mics, 1, device=device))
    steer = steer / steer[:, :, :1]
    clean = steer * (src * env)
    return clean[:, :, 0], clean + 0.5 * torch.randn(n, freqs, mics, frames, dtype=torch.complex64, device=device)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=40)
    ap.add_argument("--fix", default="")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    a = ap.parse_args()
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(3)
    batch, freqs, mics, frames, width = (2, 17, 4, 24, 16) if a.tiny else (16, 257, 8, 188, 256)
    model = MVDR(freqs, width, solver="solve" if "solve" in a.fix.split(",") else "inverse").to(dev)
    opt = torch.optim.Adam(model.parameters(), 1e-3, fused=not a.cpu)
    clean, mix = scenes(batch * 4, freqs, mics, frames, dev)
    sync = torch.cuda.synchronize if dev.type == "cuda" else (lambda: None)
    tail = max(1, a.steps // 2)
    for step in range(a.steps):
        if step == a.steps - tail:
            sync()
            t0 = time.perf_counter()
        i = step % 4 * batch
        est = model(mix[i:i + batch])
        loss = F.l1_loss(est.abs(), clean[i:i + batch].abs())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"{step} loss {loss.item():.5f}")
    sync()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / tail * 1e3:.3f}")
    print(f"final {loss.item():.5f}")


if __name__ == "__main__":
    main()
