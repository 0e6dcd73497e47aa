"""Full-batch GraphSAGE on a co-purchase graph (400k nodes, 6M edges, three layers of width 256), PyG.

Why: message passing over `edge_index` writes one 256-wide message an edge (6 GB) and adds them up again with atomics,
forward and backward. The dense layers are small beside it.
Trap: the GPU is 100 % busy.
Fix: csr: the same aggregation as a sparse matrix product over CSR (and its transpose backward): no messages, no atomics.
"""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["bandwidth", "gather-scatter"]]
FIXES = ["csr"]
TRUTH_STEPS = 120


class SpMM(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, adjacency, transposed):
        ctx.transposed = transposed
        return adjacency @ x

    @staticmethod
    def backward(ctx, grad):
        return ctx.transposed @ grad.contiguous(), None, None


class PlainSAGE(nn.Module):
    """SAGEConv with either way to aggregate; the edge-wise one is what PyG does with an edge_index."""

    def __init__(self, inputs, outputs, csr):
        super().__init__()
        self.csr = csr
        self.lin_l, self.lin_r = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, edges):
        if self.csr:
            mean = SpMM.apply(x, *edges)
        else:
            source, target = edges
            total = torch.zeros_like(x).index_add_(0, target, x.index_select(0, source))
            degree = torch.zeros(len(x), device=x.device).index_add_(0, target, torch.ones_like(target, dtype=x.dtype))
            mean = total / degree.clamp(min=1)[:, None]
        return self.lin_l(mean) + self.lin_r(x)


class Net(nn.Module):
    def __init__(self, conv, sizes):
        super().__init__()
        self.convs = nn.ModuleList(conv(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x, edges):
        for conv in self.convs[:-1]:
            x = F.dropout(F.relu(conv(x, edges)), 0.3, self.training)
        return self.convs[-1](x, edges)


def csr_pair(edges, nodes):
    source, target = edges
    degree = torch.bincount(target, minlength=nodes).clamp(min=1).float()
    weight = 1 / degree[target]
    pair = []
    for rows, columns in ((target, source), (source, target)):
        order = torch.argsort(rows)
        crow = torch.zeros(nodes + 1, dtype=torch.int64, device=rows.device)
        crow[1:] = torch.bincount(rows, minlength=nodes).cumsum(0)
        pair.append(torch.sparse_csr_tensor(crow, columns[order].contiguous(), weight[order].contiguous(), (nodes, nodes)))
    return tuple(pair)


def main():
    args = arguments(500, FIXES)
    torch.set_float32_matmul_precision("high")
    nodes, count, sizes = (400_000, 6_000_000, [128, 256, 256, 47]) if args.gpu else (500, 3000, [16, 32, 32, 5])
    edges = torch.randint(0, nodes, (2, count), device=args.device)
    features = torch.randn(nodes, sizes[0], device=args.device)
    labels = torch.randint(0, sizes[-1], (nodes,), device=args.device)
    if args.fix == "csr":
        edges = csr_pair(edges, nodes)
        model = Net(lambda a, b: PlainSAGE(a, b, True), sizes)
    elif args.gpu:
        from torch_geometric.nn import SAGEConv

        model = Net(SAGEConv, sizes)
    else:
        model = Net(lambda a, b: PlainSAGE(a, b, False), sizes)
    model.to(args.device)
    train = torch.arange(0, nodes, 2, device=args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    clock = Clock(args.steps)
    for epoch in range(args.steps):
        model.train()
        optimizer.zero_grad()
        out = model(features, edges)
        loss = F.cross_entropy(out.index_select(0, train), labels.index_select(0, train))
        loss.backward()
        optimizer.step()
        if epoch % 100 == 0:
            print(f"epoch {epoch} loss {float(loss):.4f}")
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
