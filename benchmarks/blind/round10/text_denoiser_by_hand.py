import argparse
import copy
import os
import sys
import time

import torch
import torch.nn as nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

import text_denoiser

DECAY, LR, CLIP = 0.9995, 2e-4, 1.0


def sync():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(step, seconds, warm):
    for _ in range(warm):
        step()
    sync()
    t = time.perf_counter()
    for _ in range(10):
        step()
    sync()
    n = max(30, int(seconds / ((time.perf_counter() - t) / 10)))
    t = time.perf_counter()
    for _ in range(n):
        loss = step()
    sync()
    ms = (time.perf_counter() - t) / n * 1e3
    print(f"steps {n} last loss {loss.item():.4f}", flush=True)
    print(f"mean step ms {ms:.3f}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=6)
    ap.add_argument("--plain", action="store_true")
    ap.add_argument("--ema-only", action="store_true", help="only multi_avg_fn, nothing else")
    ap.add_argument("--no-graph", action="store_true", help="compile, fused, foreach; no whole-step CUDA graph")
    a = ap.parse_args()

    torch.set_float32_matmul_precision("high" if torch.cuda.is_available() else "highest")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cfg = text_denoiser.sizes(device)
    latents, text = text_denoiser.make_data(cfg["n"], device, cfg["text_len"])
    model = text_denoiser.build(device)
    params = list(model.parameters())

    def pick():
        return torch.randint(cfg["n"], (cfg["batch"],), device=device)

    if a.plain or a.ema_only:
        if a.plain:
            ema = AveragedModel(model, avg_fn=get_ema_avg_fn(DECAY))
        else:
            ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
        opt = torch.optim.AdamW(params, lr=LR, weight_decay=0.01)

        def step():
            idx = pick()
            loss = text_denoiser.flow_loss(model, latents[idx], text[idx], device.type)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(params, CLIP)
            opt.step()
            ema.update_parameters(model)
            return loss.detach()

        measure(step, a.seconds, 10)
        return

    cuda = device.type == "cuda"
    ema_model = copy.deepcopy(model).requires_grad_(False)
    ema_params = list(ema_model.parameters())
    live = [p.detach() for p in params]
    opt = torch.optim.AdamW(params, lr=LR, weight_decay=0.01, fused=True, capturable=cuda and not a.no_graph)
    net = torch.compile(model, dynamic=False)

    def step():
        idx = pick()
        loss = text_denoiser.flow_loss(net, latents[idx], text[idx], device.type)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(params, CLIP, foreach=True)
        opt.step()
        torch._foreach_lerp_(ema_params, live, 1 - DECAY)
        return loss.detach()

    if a.no_graph or not cuda:
        measure(step, a.seconds, 15)
        return

    try:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(11):
                step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        opt.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            static_loss = step()
        torch.cuda.synchronize()
    except Exception as e:
        print(f"whole-step graph failed ({type(e).__name__}: {e}); rerunning with --no-graph", file=sys.stderr, flush=True)
        os.execv(sys.executable, [sys.executable] + sys.argv + ["--no-graph"])

    def replay():
        graph.replay()
        return static_loss

    measure(replay, a.seconds, 5)


if __name__ == "__main__":
    main()
