"""Scores a stream of images with MC-dropout: predictive NLL and mutual information."""
import argparse
import time

import torch
import torch.nn as nn

torch.set_num_threads(1)


class Classifier(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 48, 3, stride=2, padding=1), nn.BatchNorm2d(48), nn.ReLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(192, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, classes))

    def forward(self, x):
        return self.head(self.features(x))


def enable_dropout(model):
    model.eval()
    for m in model.modules():
        if isinstance(m, nn.Dropout):
            m.train()


@torch.inference_mode()
def mc_predict(model, x, samples, fix):
    if fix:
        z = model.features(x)
        draws = torch.stack([model.head(z).softmax(-1) for _ in range(samples)])
    else:
        draws = torch.stack([model(x).softmax(-1) for _ in range(samples)])
    mean = draws.mean(0)
    entropy = -(mean * mean.clamp_min(1e-9).log()).sum(-1)
    expected = -(draws * draws.clamp_min(1e-9).log()).sum(-1).mean(0)
    return mean, entropy - expected


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=650)
    ap.add_argument("--samples", type=int, default=10)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(13)
    model = Classifier()
    enable_dropout(model)
    stream = torch.Generator().manual_seed(14)
    nll_sum, mi_sum, seen, took = 0.0, 0.0, 0, []
    for i in range(args.steps):
        x = torch.randn(8, 3, 32, 32, generator=stream)
        y = torch.randint(0, 10, (8,), generator=stream)
        t0 = time.perf_counter()
        mean, mi = mc_predict(model, x, args.samples, args.fix)
        nll_sum += -mean[torch.arange(8), y].log().sum().item()
        mi_sum += mi.sum().item()
        seen += 8
        took.append(time.perf_counter() - t0)
        if i % 100 == 0:
            print(f"batch {i} nll {nll_sum / seen:.4f} mi {mi_sum / seen:.5f}")
    took = took[args.steps // 3:]
    print(f"loss {nll_sum / seen:.5f}")
    print(f"mean step ms {1e3 * sum(took) / len(took):.3f}")


if __name__ == "__main__":
    main()
