"""Day-ahead load forecasting, one model per metering site."""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class SiteModel(nn.Module):
    def __init__(self, past, future, hidden):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(past, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, future)
        self.skip = nn.Linear(past, future)

    def forward(self, x):
        return self.fc3(F.gelu(self.fc2(F.gelu(self.fc1(x))))) + self.skip(x)


class AllSites(nn.Module):
    """The same networks with a leading site dimension."""

    def __init__(self, models):
        super().__init__()
        for name in ("fc1", "fc2", "fc3", "skip"):
            self.register_parameter(name + "_w", nn.Parameter(torch.stack([getattr(m, name).weight.detach().t() for m in models])))
            self.register_parameter(name + "_b", nn.Parameter(torch.stack([getattr(m, name).bias.detach() for m in models]).unsqueeze(1)))

    def forward(self, x):
        h = F.gelu(torch.baddbmm(self.fc1_b, x, self.fc1_w))
        h = F.gelu(torch.baddbmm(self.fc2_b, h, self.fc2_w))
        return torch.baddbmm(self.fc3_b, h, self.fc3_w) + torch.baddbmm(self.skip_b, x, self.skip_w)


def load_profiles(sites, hours, dev):
    t = torch.arange(hours, device=dev, dtype=torch.float32)
    phase, amp = torch.rand(2, sites, 1, device=dev)
    day, week = torch.sin(2 * math.pi * (t / 24 + phase)), torch.sin(2 * math.pi * (t / 168 + phase))
    return (1 + amp) * day + 0.5 * week + 0.1 * torch.randn(sites, hours, device=dev)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--fix", default="")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--cpu", action="store_true")
    a = p.parse_args()
    fix = set(filter(None, a.fix.split(",")))
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(0)
    sites, past, future, hidden, batch, hours = (3, 24, 6, 16, 8, 300) if a.tiny else (48, 168, 24, 256, 256, 26_000)
    series = load_profiles(sites, hours, dev)
    models = [SiteModel(past, future, hidden).to(dev) for _ in range(sites)]
    span = torch.arange(past + future, device=dev)
    if "stacked" in fix:
        stack = AllSites(models)
        opt = torch.optim.AdamW(stack.parameters(), 1e-3)
    elif "one_optimizer" in fix:
        opt = torch.optim.AdamW([w for m in models for w in m.parameters()], 1e-3)
    else:
        opts = [torch.optim.AdamW(m.parameters(), 1e-3) for m in models]

    n = min(a.steps, 20)
    for step in range(a.steps):
        if step == a.steps - n:
            if dev.type == "cuda":
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        start = torch.randint(0, hours - past - future, (sites, batch, 1), device=dev)
        win = series.gather(1, (start + span).flatten(1)).view(sites, batch, -1)
        x, y = win[..., :past].contiguous(), win[..., past:].contiguous()
        if "stacked" in fix:
            losses = (stack(x) - y).square().mean((1, 2))
            opt.zero_grad(set_to_none=True)
            losses.sum().backward()
            opt.step()
        elif "one_optimizer" in fix:
            losses = torch.stack([F.mse_loss(m(x[i]), y[i]) for i, m in enumerate(models)])
            opt.zero_grad(set_to_none=True)
            losses.sum().backward()
            opt.step()
        else:
            losses = []
            for i, (m, o) in enumerate(zip(models, opts)):
                loss = F.mse_loss(m(x[i]), y[i])
                o.zero_grad(set_to_none=True)
                loss.backward()
                o.step()
                losses.append(loss.detach())
            losses = torch.stack(losses)
        if step % 50 == 0:
            print(f"step {step} mse {losses.mean().item():.4f} worst {losses.max().item():.4f}", flush=True)
    if dev.type == "cuda":
        torch.cuda.synchronize()
    dt = time.perf_counter() - t0
    print(f"final mse {losses.mean().item():.5f}")
    print(f"MEAN_STEP_MS {dt / n * 1e3:.3f}")


if __name__ == "__main__":
    main()
