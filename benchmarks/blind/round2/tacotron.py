"""Text to speech, Tacotron 2 style: an attention decoder that walks 160 frames with two LSTM cells, batch 32, Adam, clipping.

Why: some thirty tiny ops a frame, forward and backward, each smaller than its own launch: the device waits for the host all
through the step. nvidia-smi shows a GPU that is busy all the time, and a bigger batch is nearly free.
Fix: cuda_graph: forward, backward, clipping and Adam captured once and replayed.
"""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["overhead", "launch-bound"]]
FIXES = ["cuda_graph"]
TRUTH_STEPS = 60


class LocationAttention(nn.Module):
    def __init__(self, query, memory, size=128):
        super().__init__()
        self.query, self.memory = nn.Linear(query, size, bias=False), nn.Linear(memory, size, bias=False)
        self.where, self.place = nn.Conv1d(2, 32, 31, padding=15, bias=False), nn.Linear(32, size, bias=False)
        self.energy = nn.Linear(size, 1, bias=False)

    def forward(self, query, memory, keys, weights, total):
        location = self.place(self.where(torch.stack([weights, total], 1)).transpose(1, 2))
        energy = self.energy(torch.tanh(self.query(query)[:, None] + keys + location)).squeeze(-1)
        weights = F.softmax(energy, -1)
        return torch.bmm(weights[:, None], memory).squeeze(1), weights


class Tacotron(nn.Module):
    def __init__(self, symbols, width, mels):
        super().__init__()
        self.width, self.mels = width, mels
        self.embed = nn.Embedding(symbols, width // 2)
        self.encoder = nn.ModuleList(nn.Conv1d(width // 2, width // 2, 5, padding=2) for _ in range(3))
        self.prenet1, self.prenet2 = nn.Linear(mels, 256), nn.Linear(256, 256)
        self.first = nn.LSTMCell(256 + width // 2, width)
        self.attention = LocationAttention(width, width // 2)
        self.second = nn.LSTMCell(width + width // 2, width)
        self.to_mel, self.to_stop = nn.Linear(width + width // 2, mels), nn.Linear(width + width // 2, 1)

    def forward(self, text, mel):
        memory = self.embed(text).transpose(1, 2)
        for conv in self.encoder:
            memory = F.dropout(F.relu(conv(memory)), 0.5, self.training)
        memory = memory.transpose(1, 2)
        keys = self.attention.memory(memory)
        n = len(text)
        h1, c1, h2, c2 = (memory.new_zeros(n, self.width) for _ in range(4))
        context, frame = memory.new_zeros(n, self.width // 2), memory.new_zeros(n, self.mels)
        weights, total = memory.new_zeros(n, text.shape[1]), memory.new_zeros(n, text.shape[1])
        mels, stops = [], []
        for t in range(mel.shape[1]):
            x = F.dropout(F.relu(self.prenet1(frame)), 0.5, True)
            x = F.dropout(F.relu(self.prenet2(x)), 0.5, True)
            h1, c1 = self.first(torch.cat([x, context], -1), (h1, c1))
            h1 = F.dropout(h1, 0.1, self.training)
            context, weights = self.attention(h1, memory, keys, weights, total)
            total = total + weights
            h2, c2 = self.second(torch.cat([h1, context], -1), (h2, c2))
            h2 = F.dropout(h2, 0.1, self.training)
            both = torch.cat([h2, context], -1)
            mels.append(self.to_mel(both))
            stops.append(self.to_stop(both))
            frame = mel[:, t]
        return torch.stack(mels, 1), torch.cat(stops, 1)


def main():
    args = arguments(260, FIXES, cpu_steps=4)
    torch.set_float32_matmul_precision("high")
    graph = args.fix == "cuda_graph" and args.gpu
    batch, symbols, frames, width, mels = (32, 100, 160, 1024, 80) if args.gpu else (2, 10, 6, 64, 8)
    model = Tacotron(150, width, mels).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=graph)
    text = torch.randint(0, 150, (batch, symbols), device=args.device)
    mel = torch.randn(batch, frames, mels, device=args.device)
    stop = torch.zeros(batch, frames, device=args.device)
    stop[:, -1] = 1

    def step():
        optimizer.zero_grad(set_to_none=True)
        out, ends = model(text, mel)
        loss = F.mse_loss(out, mel) + F.binary_cross_entropy_with_logits(ends, stop)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    if graph:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            step()
        run = captured.replay
    else:
        run = step
    clock = Clock(args.steps)
    for _ in range(args.steps):
        run()
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
