"""Photo denoising service: DnCNN in fp16 over a folder of photos, no two of the same size.

Domain: image restoration (inference). One step is one photo.
Why: `cudnn.benchmark = True` was copied from a training script. Every photo has another height and width, so cuDNN
  tries its algorithms anew for each of the three kinds of convolution, every time: plans are built and trial
  convolutions run, for a result that is never used again.
Trap: loader workers decode and crop the photos (they are far ahead); the step time varies from photo to photo; the
  PSNR is read with `.item()` every step; the trials are real convolution kernels, some of them slow, on the device.
Fixes: benchmark_off: cuDNN picks by its heuristics;
  pad: photos are padded to multiples of 256, so that only a few shapes are ever seen.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from common import Clock, arguments

WALLS = [["overhead", "recompilation"]]
FIXES = ["benchmark_off", "pad"]
TRUTH_STEPS = 100


class Photos(IterableDataset):
    """Endless photos: a window of any even size out of a large picture, as uint8."""

    def __init__(self, low, high):
        self.low, self.high = low, high
        generator = torch.Generator().manual_seed(0)
        small = torch.rand(1, 3, 48, 48, generator=generator)
        big = F.interpolate(small, size=(high + 64, high + 64), mode="bilinear")
        self.picture = (big[0] * 255).to(torch.uint8)

    def __iter__(self):
        info = get_worker_info()
        generator = torch.Generator().manual_seed(1 + (info.id if info else 0))
        side = self.picture.shape[-1]
        while True:
            h, w = (2 * torch.randint(self.low // 2, self.high // 2 + 1, (2,), generator=generator)).tolist()
            y = int(torch.randint(0, side - h + 1, (1,), generator=generator))
            x = int(torch.randint(0, side - w + 1, (1,), generator=generator))
            yield self.picture[:, y : y + h, x : x + w].contiguous()


class DnCNN(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU(inplace=True)]
        for _ in range(depth - 2):  # batch norms are folded into the convolutions
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(inplace=True)]
        layers += [nn.Conv2d(width, 3, 3, padding=1)]
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return x - self.net(x)


def pad_to(x, multiple):
    h, w = x.shape[-2:]
    return F.pad(x, (0, -w % multiple, 0, -h % multiple), mode="replicate")


def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = args.fix != "benchmark_off"
    low, high, multiple = (600, 1024, 256) if args.gpu else (40, 64, 32)
    dtype = torch.float16 if args.gpu else torch.float32
    with torch.device(args.device):
        model = DnCNN(*((64, 17) if args.gpu else (8, 4)))
    model = model.to(dtype=dtype, memory_format=torch.channels_last).eval()

    loader = DataLoader(
        Photos(low, high), batch_size=None, num_workers=6 if args.gpu else 1, pin_memory=args.gpu, prefetch_factor=4
    )
    clock, total = Clock(args.steps), 0.0
    photos = iter(loader)
    with torch.inference_mode():
        for _ in range(args.steps):
            clean = next(photos).to(args.device, non_blocking=True).unsqueeze(0)
            clean = clean.to(dtype).div_(255).contiguous(memory_format=torch.channels_last)
            noisy = clean + 0.1 * torch.randn_like(clean)
            h, w = noisy.shape[-2:]
            if args.fix == "pad":
                noisy = pad_to(noisy, multiple).contiguous(memory_format=torch.channels_last)
            restored = model(noisy)[..., :h, :w].clamp(0, 1)
            mse = F.mse_loss(restored.float(), clean.float())
            total += (-10 * torch.log10(mse)).item()
            clock.tick()
    print(f"psnr {total / args.steps:.2f}")
    clock.report()


if __name__ == "__main__":
    main()
