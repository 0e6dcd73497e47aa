"""Waveform U-Net for speech denoising; clips of differing length, bf16 autocast."""
import argparse
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Down(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.conv = nn.Conv1d(i, o, 8, 4, 2)
        self.mix = nn.Conv1d(o, 2 * o, 1)

    def forward(self, x):
        return F.glu(self.mix(F.relu(self.conv(x))), 1)


class Up(nn.Module):
    def __init__(self, i, o, last):
        super().__init__()
        self.mix = nn.Conv1d(i, 2 * i, 1)
        self.conv = nn.ConvTranspose1d(i, o, 8, 4, 2)
        self.last = last

    def forward(self, x):
        x = self.conv(F.glu(self.mix(x), 1))
        return x if self.last else F.relu(x)


class WaveUNet(nn.Module):
    def __init__(self, w, depth=4):
        super().__init__()
        ch = [1] + [w * 2 ** k for k in range(depth)]
        self.down = nn.ModuleList(Down(a, b) for a, b in zip(ch[:-1], ch[1:]))
        self.mid = nn.ModuleList(nn.Conv1d(ch[-1], ch[-1], 9, padding=4) for _ in range(2))
        self.up = nn.ModuleList(Up(ch[k + 1], ch[k], k == 0) for k in reversed(range(depth)))

    def forward(self, x):
        skips = []
        for d in self.down:
            x = d(x)
            skips.append(x)
        for m in self.mid:
            x = x + F.relu(m(x))
        for u in self.up:
            x = u(x + skips.pop())
        return x


def spectral_loss(y, t):
    loss = 0
    for n in (512, 1024, 2048):
        w = torch.hann_window(n, device=y.device)
        a = torch.stft(y, n, n // 4, window=w, return_complex=True).abs()
        b = torch.stft(t, n, n // 4, window=w, return_complex=True).abs()
        loss = loss + F.l1_loss(a, b)
    return loss / 3


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="keep_cache, rare_empty")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    args = ap.parse_args()
    fix = set(filter(None, args.fix.split(",")))
    cuda = not args.cpu
    dev = torch.device("cuda" if cuda else "cpu")
    torch.manual_seed(0)
    random.seed(0)
    width, bs, longest = (8, 2, 4096) if args.tiny else (48, 24, 64000)
    clips = torch.randn(bs * 8, longest, device=dev) * 0.1
    noise = torch.randn(bs * 8, longest, device=dev) * 0.05
    net = WaveUNet(width).to(dev)
    opt = torch.optim.AdamW(net.parameters(), 3e-4, fused=True)
    window = min(args.steps, max(3, args.steps // 3))
    total = torch.zeros((), device=dev)
    for step in range(args.steps):
        if step == args.steps - window:
            if cuda:
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        n = random.randrange(longest // 2, longest + 1, 1024) // 256 * 256
        i = torch.randint(0, len(clips), (bs,), device=dev)
        clean = clips[i, :n]
        noisy = clean + noise[i.roll(1), :n]
        with torch.autocast(dev.type, torch.bfloat16):
            out = net(noisy[:, None]).squeeze(1)
        out = out.float()
        loss = F.l1_loss(out, clean) + spectral_loss(out, clean)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        total += loss.detach()
        del out, loss, clean, noisy
        if cuda and "keep_cache" not in fix and ("rare_empty" not in fix or step % 100 == 99):
            torch.cuda.empty_cache()          # long clips after short ones ran out of memory on the old card
        if step % 50 == 49:
            print(f"step {step + 1} loss {total.item() / 50:.4f}")
            total.zero_()
    if cuda:
        torch.cuda.synchronize()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / window * 1e3:.3f}")


if __name__ == "__main__":
    main()
