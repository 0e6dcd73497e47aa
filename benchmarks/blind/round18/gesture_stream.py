"""Gesture spotting in camera streams: a per-frame CNN and a recurrent head over sliding windows; segments arrive from the
decoder one after another and each is answered with the class scores of all its windows."""
import argparse
import time

import torch
from torch import nn


class Down(nn.Sequential):
    def __init__(self, cin, cout, stride=2):
        super().__init__(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class FrameNet(nn.Module):
    def __init__(self, width, dim):
        super().__init__()
        self.body = nn.Sequential(Down(3, width), Down(width, 2 * width), Down(2 * width, 2 * width, 1),
                                  Down(2 * width, 4 * width), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.out = nn.Linear(4 * width, dim)

    def forward(self, frames):
        return self.out(self.body(frames))


class Spotter(nn.Module):
    def __init__(self, width, dim, classes, window, stride, fix=""):
        super().__init__()
        self.frame, self.window, self.stride, self.fix = FrameNet(width, dim), window, stride, fix
        self.time = nn.GRU(dim, dim, batch_first=True)
        self.classify = nn.Linear(dim, classes)

    def windows(self, frames):
        """[frames, ...] -> [windows, window, ...]"""
        return frames.unfold(0, self.window, self.stride).movedim(-1, 1)

    def forward(self, segment):
        if self.fix == "once":
            features = self.windows(self.frame(segment))
        else:
            clips = self.windows(segment)
            features = self.frame(clips.flatten(0, 1)).unflatten(0, clips.shape[:2])
        states, _ = self.time(features)
        return self.classify(states[:, -1])


class Camera:
    """Synthetic footage: a bright patch wanders over a noisy background."""

    def __init__(self, size, length, device, seed=17):
        self.g = torch.Generator().manual_seed(seed)
        self.size, self.length, self.device = size, length, device
        grid = torch.linspace(-1, 1, size)
        self.yx = torch.stack(torch.meshgrid(grid, grid, indexing="ij"))
        self.noise = torch.randn(64, 3, size, size, generator=self.g) * 0.2

    def segment(self):
        start, speed = torch.rand(2, 1, generator=self.g) * 2 - 1, torch.randn(2, 1, generator=self.g) * 0.03
        path = (start + speed * torch.arange(self.length)).t()[:, :, None, None]
        glow = torch.exp(-20 * (self.yx - path).square().sum(1, keepdim=True))
        pick = torch.randint(64, (self.length,), generator=self.g)
        return (glow + self.noise[pick]).to(self.device)


@torch.inference_mode()
def serve(model, camera, segments, threshold=0.093):
    tick, alarms, score, wait = [], 0, 0.0, torch.cuda.synchronize if camera.device == "cuda" else (lambda: None)
    for _ in range(segments):
        segment = camera.segment()
        wait()
        start = time.perf_counter()
        probs = model(segment).softmax(-1).cpu()
        tick.append(time.perf_counter() - start)
        best = probs.amax(1)
        alarms += int((best > threshold).sum())
        score += best.mean().item()
    return tick, alarms, score / segments


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="once, channels_last")
    ap.add_argument("--device", default="cpu")
    args = ap.parse_args()
    size, length, width, dim, stride = (224, 256, 64, 512, 2) if args.device == "cuda" else (64, 64, 16, 96, 2)
    torch.manual_seed(2)
    model = Spotter(width, dim, 12, 16, stride, args.fix).to(args.device).eval()
    if args.fix == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    tick, alarms, score = serve(model, Camera(size, length, args.device), args.steps)
    kept = tick[args.steps // 3:]
    print(f"alarms {alarms} mean best score {score:.6f}")
    print(f"mean step ms {sum(kept) / len(kept) * 1e3:.3f}")


if __name__ == "__main__":
    main()
