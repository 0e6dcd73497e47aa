"""Vessel trajectory forecasting: recurrent encoder over AIS tracks, direct multi-horizon head."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.backends.cuda.matmul.allow_tf32 = True


class CellEncoder(nn.Module):
    def __init__(self, d_in, hidden, layers):
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTMCell(d_in if i == 0 else hidden, hidden) for i in range(layers))
        self.hidden = hidden

    def forward(self, x):
        b, t, _ = x.shape
        state = [(x.new_zeros(b, self.hidden), x.new_zeros(b, self.hidden)) for _ in self.cells]
        outs = []
        for k in range(t):
            inp = x[:, k]
            for i, cell in enumerate(self.cells):
                state[i] = cell(inp, state[i])
                inp = state[i][0]
            outs.append(inp)
        return torch.stack(outs, dim=1)


class StackEncoder(nn.Module):
    def __init__(self, d_in, hidden, layers):
        super().__init__()
        self.rnn = nn.LSTM(d_in, hidden, layers, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0]


class Forecaster(nn.Module):
    def __init__(self, d_in, hidden, layers, horizon, encoder):
        super().__init__()
        self.enc = encoder(d_in, hidden, layers)
        self.att = nn.Linear(hidden, 1)
        self.head = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.GELU(), nn.Linear(hidden, horizon * 4))
        self.horizon = horizon

    def forward(self, x):
        h = self.enc(x)
        w = self.att(h).softmax(1)
        z = torch.cat([h[:, -1], (w * h).sum(1)], -1)
        mu, logs = self.head(z).view(len(x), self.horizon, 4).chunk(2, -1)
        return x[:, -1:, :2] + mu.cumsum(1), logs.clamp(-6, 3)


def tracks(n, length, device):
    """Smooth random courses: position, speed, heading, type."""
    turn = 0.03 * torch.randn(n, length, device=device).cumsum(1)
    speed = 0.1 + 0.05 * torch.rand(n, 1, device=device).expand(n, length)
    pos = torch.stack([(speed * turn.cos()).cumsum(1), (speed * turn.sin()).cumsum(1)], -1)
    extra = torch.stack([speed, turn.cos(), turn.sin(), torch.rand(n, 1, device=device).expand(n, length)], -1)
    return torch.cat([pos, extra], -1)


def nll(mu, logs, target):
    return (0.5 * ((target - mu) * torch.exp(-logs)).square() + logs).mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--fix", default="")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    a = ap.parse_args()
    fix = a.fix.split(",")
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(7)
    batch, hist, horizon, hidden, layers = (4, 12, 3, 16, 2) if a.tiny else (512, 120, 24, 256, 2)
    enc = StackEncoder if "stacked_lstm" in fix else CellEncoder
    model = Forecaster(6, hidden, layers, horizon, enc).to(dev)
    opt = torch.optim.AdamW(model.parameters(), 1e-3, fused=not a.cpu)
    data = tracks(batch * 32, hist + horizon, dev)
    sync = torch.cuda.synchronize if dev.type == "cuda" else (lambda: None)
    tail = max(1, a.steps // 2)
    for step in range(a.steps):
        if step == a.steps - tail:
            sync()
            t0 = time.perf_counter()
        i = step % 32 * batch
        seq = data[i:i + batch]
        mu, logs = model(seq[:, :hist])
        loss = nll(mu, logs, seq[:, hist:, :2])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 50 == 0:
            with torch.no_grad():
                ade = (mu - seq[:, hist:, :2]).norm(dim=-1).mean()
            print(f"step {step} nll {loss.item():.4f} ade {ade.item():.4f}")
    sync()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / tail * 1e3:.3f}")
    print(f"final {loss.item():.5f}")


if __name__ == "__main__":
    main()
