"""Leading eigenvectors of a large dense kernel matrix by block power iteration (kernel PCA)."""
import argparse
import time

import torch


def build_kernel(pts, width, dtype, rows):
    n = len(pts)
    K = torch.empty(n, n, dtype=dtype, device=pts.device)
    sq = pts.square().sum(1)
    for i in range(0, n, rows):
        d2 = torch.addmm(sq[None], pts[i:i + rows], pts.t(), alpha=-2).add_(sq[i:i + rows, None])
        K[i:i + rows] = d2.mul_(-0.5 / width ** 2).exp_()
    return K


def orthonormalise(Z):
    for _ in range(2):
        L, _ = torch.linalg.cholesky_ex(Z.t() @ Z + 1e-6 * torch.eye(Z.size(1), device=Z.device) * Z.square().mean())
        Z = torch.linalg.solve_triangular(L, Z.t(), upper=False).t()
    return Z


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=80)
    p.add_argument("--fix", default="")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--cpu", action="store_true")
    a = p.parse_args()
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(0)
    n, k, rows = (200, 4, 64) if a.tiny else (163_840, 32, 4096)
    dtype = torch.float32 if a.cpu else torch.bfloat16
    with torch.inference_mode():
        pts = torch.randn(n, 8, device=dev)
        K = build_kernel(pts, 2.0, dtype, rows)
        Q = orthonormalise(torch.randn(n, k, device=dev))
        timed = min(a.steps, 40)
        for it in range(a.steps):
            if it == a.steps - timed:
                if dev.type == "cuda":
                    torch.cuda.synchronize()
                t0 = time.perf_counter()
            Z = (K @ Q.to(dtype)).float()
            ritz = (Q * Z).sum(0)
            Q = orthonormalise(Z)
        if dev.type == "cuda":
            torch.cuda.synchronize()
        dt = time.perf_counter() - t0
    print("leading values", [round(v, 3) for v in ritz[:4].tolist()])
    print(f"MEAN_STEP_MS {dt / timed * 1e3:.3f}")


if __name__ == "__main__":
    main()
