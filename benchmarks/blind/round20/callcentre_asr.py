"""Transcripts of call-centre audio: log-mel frames, strided convolutions, bidirectional LSTMs, greedy CTC."""
import argparse
import io
import math
import time

import torch
from torch import nn
from torch.nn import functional as F

FIXES = ("float32", "bfloat16")
SYMBOLS = "_ abcdefghijklmnopqrstuvwxyz'"


class Recogniser(nn.Module):
    def __init__(self, mels, width, depth):
        super().__init__()
        self.conv1 = nn.Conv1d(mels, 2 * width, 5, stride=2, padding=2)
        self.conv2 = nn.Conv1d(2 * width, 2 * width, 5, stride=2, padding=2)
        self.rnn = nn.LSTM(2 * width, width, depth, batch_first=True, bidirectional=True)
        self.norm, self.head = nn.LayerNorm(2 * width), nn.Linear(2 * width, len(SYMBOLS))

    def forward(self, mel):
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).transpose(1, 2)
        x, _ = self.rnn(x)
        return self.head(self.norm(x))


class LogMel(nn.Module):
    """80 bands of 25 ms windows every 10 ms, normalised over the call."""

    def __init__(self, mels, rate=16_000, n_fft=400, hop=160):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        edges = 700 * (torch.logspace(math.log10(1.03), math.log10(1 + rate / 1400), mels + 2) - 1)
        at = torch.linspace(0, rate / 2, n_fft // 2 + 1)
        rise = (at - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
        fall = (edges[2:, None] - at) / (edges[2:] - edges[1:-1])[:, None]
        self.register_buffer("bank", torch.minimum(rise, fall).clamp(min=0), persistent=False)
        self.register_buffer("window", torch.hann_window(n_fft), persistent=False)

    def forward(self, audio):
        spec = torch.stft(audio, self.n_fft, self.hop, window=self.window, return_complex=True).abs().square()
        mel = (self.bank @ spec).clamp(min=1e-8).log()
        return (mel - mel.mean((1, 2), keepdim=True)) / mel.std((1, 2), keepdim=True)


def checkpoint(size):
    """As the training machines save it: half precision."""
    torch.manual_seed(20)
    file = io.BytesIO()
    torch.save({k: v.half() for k, v in Recogniser(*size).state_dict().items()}, file)
    file.seek(0)
    return file


def load(file, size, fix):
    model = Recogniser(*size).to({None: torch.half, "float32": torch.float, "bfloat16": torch.bfloat16}[fix])
    model.load_state_dict(torch.load(file))
    return model.eval().requires_grad_(False)


def speech(calls, seconds, gen):
    """Voiced sounds with a moving pitch, pauses, line noise."""
    t = torch.arange(int(seconds * 16_000)) / 16_000
    pitch = 110 + 60 * torch.rand(calls, 1, generator=gen) + 15 * torch.sin(2 * math.pi * 1.7 * t)
    phase = 2 * math.pi * (pitch / 16_000).cumsum(1)
    voice = sum(torch.sin(k * phase) / k for k in range(1, 5))
    pauses = (torch.sin(2 * math.pi * 0.9 * t + torch.rand(calls, 1, generator=gen)) > -0.4).float()
    return 0.2 * voice * pauses + 0.01 * torch.randn(calls, len(t), generator=gen)


def transcript(best):
    """Greedy CTC: repeated symbols fold, blanks go."""
    best = torch.unique_consecutive(best)
    return "".join(SYMBOLS[i] for i in best.tolist() if i)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=40, help="batches of segments to transcribe")
    ap.add_argument("--fix", choices=FIXES)
    ap.add_argument("--size", choices=("cpu", "small"), default="cpu")
    args = ap.parse_args()
    size, calls, seconds = ((80, 192, 3), 8, 2.5) if args.size == "cpu" else ((40, 32, 1), 1, 1.0)

    frontend = LogMel(size[0])
    model = load(checkpoint(size), size, args.fix)
    dtype = next(model.parameters()).dtype
    audio = speech(4 * calls, seconds, torch.Generator().manual_seed(2))
    took, confidence = [], 0.0
    for step in range(args.steps):
        start = time.perf_counter()
        segment = audio[step % 4 * calls:][:calls]
        with torch.inference_mode():
            logits = model(frontend(segment).to(dtype))
            chance, best = logits.float().softmax(-1).max(-1)
        texts = [transcript(row) for row in best]
        took.append(time.perf_counter() - start)
        confidence += chance.mean().item() / args.steps
    late = took[args.steps // 3:]
    print(f"last: {texts[0][:40]!r}, {sum(took) / args.steps / calls / seconds:.3f} s of work a second of audio")
    print(f"mean confidence {confidence:.6f}")
    print(f"mean step ms {1e3 * sum(late) / len(late):.3f}")


if __name__ == "__main__":
    main()
