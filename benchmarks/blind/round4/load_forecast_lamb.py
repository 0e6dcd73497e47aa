"""Electric-load forecasting: a channel-independent patch transformer trained with LAMB, bf16 autocast.

Domain: time series (training). One step is one optimizer step.
Why: LAMB needs the norms of each weight and each update, and the log wants the gradient's. The norms are computed for
  all tensors at once on the device, but turned into Python numbers one by one: over a thousand `.item()` calls a step,
  each a full stop of the device for the way of four bytes to the host, with an empty queue.
Trap: the loader has workers and pinned memory and is ahead; the number of patches changes from step to step (so does
  the step time); the optimizer is made of foreach kernels (not fused), yet they are a small part; the loss is read
  once a step, when the device is drained anyway.
Fixes: stack: the norms are stacked and come over in one copy;
  on_device: the trust ratios stay on the device, and the log is written every 50th step only.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from common import Clock, arguments

WALLS = [["overhead", "host-sync"]]
FIXES = ["stack", "on_device"]
TRUTH_STEPS = 150


class Meters(IterableDataset):
    """Endless windows of smart-meter readings; the history is 32, 40 or 48 patches long, one length per batch."""

    def __init__(self, batch, channels, patches, patch, horizon):
        self.batch, self.channels, self.patches, self.patch, self.horizon = batch, channels, patches, patch, horizon
        time = torch.arange(60000)
        phase = torch.rand(channels, 1, generator=torch.Generator().manual_seed(0)) * 6.3
        self.series = torch.sin(time / 15.3 + phase) + 0.5 * torch.sin(time / 107.0 + 2 * phase)

    def __iter__(self):
        info = get_worker_info()
        generator = torch.Generator().manual_seed(1 + (info.id if info else 0))
        while True:
            patches = self.patches[int(torch.randint(0, len(self.patches), (1,), generator=generator))]
            history = patches * self.patch
            starts = torch.randint(0, self.series.shape[1] - history - self.horizon, (self.batch,), generator=generator)
            windows = torch.stack([self.series[:, s : s + history + self.horizon] for s in starts.tolist()])
            windows += 0.1 * torch.randn(windows.shape, generator=generator)
            yield windows[..., :history].contiguous(), windows[..., history:].contiguous()


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        h = self.norm1(x)
        q, k, v = (f(h).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Forecaster(nn.Module):
    def __init__(self, patch, longest, horizon, width, depth, heads):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(patch, width)
        self.position = nn.Parameter(torch.randn(longest, width) * 0.02)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, horizon)

    def forward(self, history):
        mean, std = history.mean(-1, keepdim=True), history.std(-1, keepdim=True) + 1e-5
        x = ((history - mean) / std).unflatten(-1, (-1, self.patch)).flatten(0, 1)
        x = self.embed(x) + self.position[-x.shape[1] :]
        x = self.head(self.norm(self.layers(x)).mean(1)).float()
        return x.view(*mean.shape[:2], -1) * std + mean


class Lamb:
    def __init__(self, params, lr, how, betas=(0.9, 0.99), eps=1e-6, decay=0.01):
        self.params, self.lr, self.how = list(params), lr, how
        self.betas, self.eps, self.decay = betas, eps, decay
        self.first = [torch.zeros_like(p) for p in self.params]
        self.second = [torch.zeros_like(p) for p in self.params]
        self.steps, self.largest = 0, 0.0

    def numbers(self, norms):
        if self.how == "stack":
            return torch.stack(norms).tolist()
        return [n.item() for n in norms]

    @torch.no_grad()
    def step(self):
        self.steps += 1
        grads = [p.grad for p in self.params]
        b1, b2 = self.betas
        torch._foreach_lerp_(self.first, grads, 1 - b1)
        torch._foreach_mul_(self.second, b2)
        torch._foreach_addcmul_(self.second, grads, grads, 1 - b2)
        update = torch._foreach_div(self.second, 1 - b2**self.steps)
        torch._foreach_sqrt_(update)
        torch._foreach_add_(update, self.eps)
        torch._foreach_reciprocal_(update)
        torch._foreach_mul_(update, self.first)
        torch._foreach_div_(update, 1 - b1**self.steps)
        torch._foreach_add_(update, self.params, alpha=self.decay)

        weight_norms, update_norms = torch._foreach_norm(self.params), torch._foreach_norm(update)
        grad_norms = torch._foreach_norm(grads)
        if self.how == "on_device":
            w, u = torch.stack(weight_norms), torch.stack(update_norms)
            ratio = torch.where((w > 0) & (u > 0), w / u, 1.0).clamp(max=10) * -self.lr
            torch._foreach_mul_(update, list(ratio.unbind()))
            if self.steps % 50 == 0:
                self.largest = torch.stack(grad_norms).max().item()
        else:
            n = len(self.params)
            norms = self.numbers([*weight_norms, *update_norms, *grad_norms])
            weights, updates, self.largest = norms[:n], norms[n : 2 * n], max(norms[2 * n :])
            ratio = [-self.lr * min(w / u, 10) if w > 0 and u > 0 else -self.lr for w, u in zip(weights, updates)]
            torch._foreach_mul_(update, ratio)
        torch._foreach_add_(self.params, update)

    def zero_grad(self):
        for p in self.params:
            p.grad = None


def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(0)
    if args.gpu:
        batch, channels, patches, patch, horizon, width, depth, heads = 32, 8, (32, 40, 48), 16, 96, 512, 24, 8
    else:
        batch, channels, patches, patch, horizon, width, depth, heads = 4, 2, (3, 4), 8, 12, 32, 2, 4
    with torch.device(args.device):
        model = Forecaster(patch, max(patches), horizon, width, depth, heads)
    optimizer = Lamb(model.parameters(), 2e-3, args.fix)
    loader = DataLoader(
        Meters(batch, channels, patches, patch, horizon),
        batch_size=None,
        num_workers=6 if args.gpu else 1,
        pin_memory=args.gpu,
        prefetch_factor=4,
    )
    clock, batches, running = Clock(args.steps), iter(loader), 0.0
    for step in range(args.steps):
        history, future = (x.to(args.device, non_blocking=True) for x in next(batches))
        with torch.autocast(args.device.type, dtype=torch.bfloat16):
            forecast = model(history)
        loss = F.smooth_l1_loss(forecast, future)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if args.fix != "on_device" or step % 50 == 49:
            running = 0.9 * running + 0.1 * loss.item()
        clock.tick()
    print(f"loss {running:.4f} largest gradient norm {optimizer.largest:.4f}")
    clock.report()


if __name__ == "__main__":
    main()
