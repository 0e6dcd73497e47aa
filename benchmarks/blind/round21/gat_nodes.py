# Graph attention network for node classification, full batch, no PyG.
import argparse
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=420)
parser.add_argument("--fix", action="store_true")
args = parser.parse_args()


def sbm(n, blocks, deg, seed):
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(0, blocks, (n,), generator=g)
    src = torch.randint(0, n, (n * deg * 3,), generator=g)
    dst = torch.randint(0, n, (n * deg * 3,), generator=g)
    keep = (label[src] == label[dst]) | (torch.rand(len(src), generator=g) < 0.2)
    x = torch.randn(n, 32, generator=g)
    x[:, 0] += label.float()
    return x, label, src[keep], dst[keep]


class GATLayer(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.lin = nn.Linear(i, o, bias=False)
        self.att = nn.Linear(2 * o, 1, bias=False)
        self.bias = nn.Parameter(torch.zeros(o))

    def scores(self, z, src, dst):
        if args.fix:
            left, right = (z @ self.att.weight.view(2, -1).t()).unbind(1)
            return left.index_select(0, src) + right.index_select(0, dst)
        pair = torch.cat([z[src], z[dst]], dim=1)
        return self.att(pair).squeeze(1)

    def forward(self, h, src, dst):
        z = self.lin(h)
        e = F.leaky_relu(self.scores(z, src, dst), 0.2).exp()
        total = torch.zeros(len(z)).index_add(0, dst, e)
        w = e / total.clamp_min(1e-9).index_select(0, dst)
        msg = w[:, None] * z.index_select(0, src)
        return torch.zeros_like(z).index_add(0, dst, msg) + self.bias


class GAT(nn.Module):
    def __init__(self, d_in, hid, out):
        super().__init__()
        self.a = GATLayer(d_in, hid)
        self.b = GATLayer(hid, hid)
        self.out = nn.Linear(hid, out)

    def forward(self, x, src, dst):
        h = F.elu(self.a(x, src, dst))
        h = F.dropout(h, 0.2, self.training)
        return self.out(F.elu(self.b(h, src, dst)))


torch.manual_seed(0)
x, label, src, dst = sbm(1500, 6, 8, seed=4)
train = torch.rand(len(x)) < 0.3
net = GAT(32, 64, 6)
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
print(f"{len(x)} nodes {len(src)} edges")

clock = []
for epoch in range(args.steps):
    tic = time.perf_counter()
    logits = net(x, src, dst)
    loss = F.cross_entropy(logits[train], label[train])
    opt.zero_grad()
    loss.backward()
    opt.step()
    clock.append(time.perf_counter() - tic)
    if epoch % 100 == 0:
        acc = (logits[~train].argmax(1) == label[~train]).float().mean()
        print(f"epoch {epoch} loss {loss.item():.4f} held-out {acc.item():.3f}")

clock = clock[args.steps // 3:]
print(f"loss {loss.item():.5f}")
print(f"mean step ms {1e3 * sum(clock) / len(clock):.3f}")
