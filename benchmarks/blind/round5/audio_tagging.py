"""Audio tagging with a spectrogram transformer, waveforms augmented on the device.

Domain: sound, training with timm (ViT-B, bf16 autocast).
Why: each clip's augmentation draws its random numbers on the device and then uses them in Python (`int(...)`, `if ... < p`):
     five round trips a clip, 160 clips a batch. Eight hundred times a step the host waits for the device and the device
     then waits for the host, and the host never gets ahead of the transformer.
Trap: the stretch is full of tiny kernels (rolls, gains, masks) and reads like launch-bound; those launches alone would
      hide behind the transformer. The loss is only read every 50th step.
Fixes: draw-on-host (the same numbers from the host's generator: no round trip).
"""

import timm
import torch
from torch.nn import functional as F

from common import Clock, arguments

WALLS = [["overhead", "host-sync"]]
FIXES = ["draw-on-host"]
TRUTH_STEPS = 180


def augment(clips, draw_on):
    """Shift, gain, polarity, a cut-out and noise for each clip."""
    samples = clips.shape[1]
    for row in range(len(clips)):
        clip = clips[row]
        shift = int(torch.randint(samples, (1,), device=draw_on))
        clip = torch.roll(clip, shift)
        if torch.rand(1, device=draw_on) < 0.5:
            clip = -clip
        gain = float(torch.empty(1, device=draw_on).uniform_(0.7, 1.3))
        clip = clip * gain
        start = int(torch.randint(samples - samples // 8, (1,), device=draw_on))
        clip[start : start + samples // 8] = 0
        if torch.rand(1, device=draw_on) < 0.3:
            clip = clip + 0.01 * torch.randn_like(clip)
        clips[row] = clip
    return clips


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    device = args.device
    bank_size, batch, samples = (3000, 160, 40960) if args.gpu else (16, 4, 10240)
    frames, mels, classes = samples // 160, 128, 527
    draw_on = torch.device("cpu") if args.fix == "draw-on-host" else device

    bank = torch.randn(bank_size, samples, device=device)
    tags = (torch.rand(bank_size, classes, device=device) < 0.01).float()
    window = torch.hann_window(512, device=device)
    filters = torch.rand(mels, 257, device=device) / 257
    name = "vit_base_patch16_224" if args.gpu else "vit_tiny_patch16_224"
    model = timm.create_model(name, img_size=(mels, frames), in_chans=1, num_classes=classes).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    clock = Clock(args.steps)
    for step in range(args.steps):
        rows = torch.randint(bank_size, (batch,), device=device)
        with torch.no_grad():
            clips = augment(bank[rows], draw_on)
            spectrum = torch.stft(clips, 512, hop_length=160, window=window, return_complex=True)[..., :frames]
            image = (filters @ spectrum.abs().square()).clamp_min(1e-6).log().unsqueeze(1)
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(image)
        loss = F.binary_cross_entropy_with_logits(logits.float(), tags[rows])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            print(f"{step} {loss.item():.4f}", flush=True)
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
