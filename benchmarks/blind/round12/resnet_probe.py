"""ResNet-50 image classification with per-layer activation monitoring."""
import argparse
import json
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ActivationMonitor:
    """Collects summary statistics of the output of every leaf module."""

    def __init__(self, model, path, always=True):
        self.stats, self.path, self.always, self.enabled = {}, path, always, always
        for name, m in model.named_modules():
            if not list(m.children()):
                m.register_forward_hook(self._hook(name))

    def _hook(self, name):
        def fn(module, inp, out):
            if not self.enabled:
                return
            x = out.detach().float()
            self.stats[name] = {"mean": x.mean(), "std": x.std(), "absmax": x.abs().max(),
                                "zeros": (x == 0).float().mean(), "hist": torch.histc(x, bins=64, min=-8, max=8)}
        return fn

    def write(self, step):
        row = {k: {n: v.tolist() for n, v in s.items()} for k, s in self.stats.items()}
        with open(self.path, "a") as f:
            f.write(json.dumps({"step": step, "acts": row}) + "\n")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--fix", default="")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--cpu", action="store_true")
    p.add_argument("--log-every", type=int, default=100)
    a = p.parse_args()
    fixes = set(filter(None, a.fix.split(",")))
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(0)
    batch, side, pool, classes = (4, 64, 8, 10) if a.tiny else (128, 224, 1024, 1000)

    net = torchvision.models.resnet50(weights=None, num_classes=classes)
    net = net.to(dev, memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=1e-4, fused=True)
    log_dir = tempfile.mkdtemp()
    monitor = ActivationMonitor(net, os.path.join(log_dir, "acts.jsonl"), always="probe_on_log" not in fixes)

    images = torch.randint(0, 256, (pool, 3, side, side), dtype=torch.uint8, device=dev)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, classes, (pool,), device=dev)
    mean = torch.tensor(MEAN, device=dev).view(1, 3, 1, 1) * 255
    inv = 1 / (torch.tensor(STD, device=dev).view(1, 3, 1, 1) * 255)

    last = min(a.steps, 20)
    for step in range(a.steps):
        if step == a.steps - last:
            if dev.type == "cuda":
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        log_now = step % a.log_every == 0
        monitor.enabled = monitor.always or log_now
        idx = torch.randint(0, pool, (batch,), device=dev)
        x = (images.index_select(0, idx).float() - mean) * inv
        with torch.autocast(dev.type, torch.bfloat16):
            loss = F.cross_entropy(net(x), labels[idx], label_smoothing=0.1)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if log_now:
            monitor.write(step)
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if dev.type == "cuda":
        torch.cuda.synchronize()
    dt = time.perf_counter() - t0
    print(f"final loss {loss.item():.5f}")
    print(f"MEAN_STEP_MS {dt / last * 1e3:.3f}")


if __name__ == "__main__":
    main()
