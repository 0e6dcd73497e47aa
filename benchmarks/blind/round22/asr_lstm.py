"""CTC phoneme recogniser, one recurrent layer over log-mel frames."""
import argparse
from time import perf_counter

import torch
import torch.nn as nn
import torch.nn.functional as F


class GateCell(nn.Module):
    def __init__(self, d_in, d):
        super().__init__()
        self.xi, self.hi = nn.Linear(d_in, d), nn.Linear(d, d)
        self.xf, self.hf = nn.Linear(d_in, d), nn.Linear(d, d)
        self.xg, self.hg = nn.Linear(d_in, d), nn.Linear(d, d)
        self.xo, self.ho = nn.Linear(d_in, d), nn.Linear(d, d)

    def forward(self, x, h, c):
        i = torch.sigmoid(self.xi(x) + self.hi(h))
        f = torch.sigmoid(self.xf(x) + self.hf(h))
        g = torch.tanh(self.xg(x) + self.hg(h))
        o = torch.sigmoid(self.xo(x) + self.ho(h))
        c = f * c + i * g
        return o * torch.tanh(c), c


class Recurrent(nn.Module):
    def __init__(self, d_in, d):
        super().__init__()
        self.d = d
        self.cell = GateCell(d_in, d)

    def forward(self, x):
        h = x.new_zeros(x.size(0), self.d)
        c = x.new_zeros(x.size(0), self.d)
        outs = []
        for t in range(x.size(1)):
            h, c = self.cell(x[:, t], h, c)
            outs.append(h)
        return torch.stack(outs, 1)

    def as_lstm(self):
        k = self.cell
        lstm = nn.LSTM(k.xi.in_features, self.d, batch_first=True)
        xs, hs = (k.xi, k.xf, k.xg, k.xo), (k.hi, k.hf, k.hg, k.ho)
        with torch.no_grad():
            lstm.weight_ih_l0.copy_(torch.cat([m.weight for m in xs]))
            lstm.weight_hh_l0.copy_(torch.cat([m.weight for m in hs]))
            lstm.bias_ih_l0.copy_(torch.cat([m.bias for m in xs]))
            lstm.bias_hh_l0.copy_(torch.cat([m.bias for m in hs]))
        return lstm


class Recogniser(nn.Module):
    def __init__(self, mels=40, d=128, phones=40):
        super().__init__()
        self.front = nn.Linear(mels, d)
        self.rnn = Recurrent(d, d)
        self.out = nn.Linear(d, phones)

    def forward(self, x):
        y = self.rnn(torch.relu(self.front(x)))
        if isinstance(y, tuple):
            y = y[0]
        return self.out(y).log_softmax(-1)


def make_corpus(n, frames, mels, phones, labels):
    g = torch.Generator().manual_seed(3)
    y = torch.randint(1, phones, (n, labels), generator=g)
    proto = torch.randn(phones, mels, generator=g)
    x = proto[y].repeat_interleave(frames // labels, 1)
    return x + 0.3 * torch.randn(x.shape, generator=g), y


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--frames", type=int, default=90)
    p.add_argument("--fix", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    x, y = make_corpus(512, a.frames, 40, 40, 9)
    net = Recogniser()
    if a.fix:
        net.rnn = net.rnn.as_lstm()
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    t_len = torch.full((a.batch,), x.size(1))
    y_len = torch.full((a.batch,), y.size(1))
    g = torch.Generator().manual_seed(5)
    spent = []
    for step in range(a.steps):
        tic = perf_counter()
        idx = torch.randint(0, len(x), (a.batch,), generator=g)
        logp = net(x[idx]).transpose(0, 1)
        loss = F.ctc_loss(logp, y[idx], t_len, y_len)
        opt.zero_grad()
        loss.backward()
        opt.step()
        spent.append(perf_counter() - tic)
        if step % 20 == 19:
            print(f"{step + 1:5d} ctc {loss.item():.5f}")
    tail = spent[a.steps // 2:]
    print("MEAN_STEP_MS %.2f" % (1000 * sum(tail) / len(tail)))


if __name__ == "__main__":
    main()
