"""Classifies patents by technology class: a full-batch graph convolutional network over the citation graph."""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

FIXES = ["sparse", "bf16"]
STEPS = 45


class SparseProduct(torch.autograd.Function):
    """adjacency @ x for a symmetric adjacency in CSR form."""

    @staticmethod
    def forward(ctx, adjacency, x):
        ctx.adjacency = adjacency
        return adjacency @ x

    @staticmethod
    def backward(ctx, grad):
        return None, ctx.adjacency @ grad.contiguous()


def normalised_adjacency(edges, nodes, device, sparse):
    """D^-1/2 (A + I) D^-1/2 of the undirected graph."""
    edges = torch.cat([edges, edges.flip(0), torch.arange(nodes).expand(2, -1)], 1)
    key = torch.unique(edges[0] * nodes + edges[1]).to(device)
    row, column = key // nodes, key % nodes
    scale = torch.bincount(row, minlength=nodes).float().rsqrt()
    value = scale[row] * scale[column]
    if sparse:
        adjacency = torch.sparse_coo_tensor(torch.stack([row, column]), value, (nodes, nodes))
        return adjacency.coalesce().to_sparse_csr()
    adjacency = torch.zeros(nodes, nodes, device=device)
    adjacency[row, column] = value
    return adjacency


class GraphConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.linear = nn.Linear(cin, cout, bias=False)
        self.bias = nn.Parameter(torch.zeros(cout))

    def forward(self, adjacency, x):
        x = self.linear(x)
        if adjacency.layout == torch.sparse_csr:
            return SparseProduct.apply(adjacency, x) + self.bias
        return adjacency @ x + self.bias


class GCN(nn.Module):
    def __init__(self, features, width, classes, layers, dropout=0.3):
        super().__init__()
        sizes = [features] + [width] * (layers - 1) + [classes]
        self.convs = nn.ModuleList(GraphConv(a, b) for a, b in zip(sizes, sizes[1:]))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers - 1))
        self.dropout = dropout

    def forward(self, adjacency, x):
        for i, conv in enumerate(self.convs[:-1]):
            y = F.relu(self.norms[i](conv(adjacency, x)))
            y = F.dropout(y, self.dropout, self.training)
            x = y + x if x.shape == y.shape else y
        return self.convs[-1](adjacency, x)


def citations(nodes, per_node, features, classes, generator):
    """Newer patents cite older ones, mostly of their own class; features are noisy class prototypes."""
    label = torch.randint(classes, (nodes,), generator=generator)
    citing = torch.arange(nodes).repeat_interleave(per_node)
    cited = (torch.rand(len(citing), generator=generator) ** 0.7 * citing).long()
    keep = (label[citing] == label[cited]) | (torch.rand(len(citing), generator=generator) < 0.6)
    prototypes = torch.randn(classes, features, generator=generator)
    text = prototypes[label] + 3 * torch.randn(nodes, features, generator=generator)
    return torch.stack([citing[keep], cited[keep]]), text, label


def main():
    args = arguments(STEPS, FIXES)
    torch.manual_seed(5)
    torch.set_float32_matmul_precision("high")
    nodes, per_node, features, width, classes, layers = (40960, 10, 512, 512, 40, 3) if args.gpu else (300, 4, 24, 16, 5, 3)
    generator = torch.Generator().manual_seed(5)
    edges, text, label = citations(nodes, per_node, features, classes, generator)
    adjacency = normalised_adjacency(edges, nodes, args.device, sparse=args.fix == "sparse")
    text, label = text.to(args.device), label.to(args.device)
    training = (torch.rand(nodes, generator=generator) < 0.5).to(args.device)
    target = torch.where(training, label, -100)

    dropout = 0.3 if args.gpu else 0.0
    model = GCN(features, width, classes, layers, dropout).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=5e-4, fused=args.gpu)
    half = args.fix == "bf16"
    if half:
        adjacency = adjacency.bfloat16()
    clock = Clock(args.steps)
    for _ in range(args.steps):
        with torch.autocast(args.device.type, torch.bfloat16, enabled=half):
            scores = model(adjacency, text)
        loss = F.cross_entropy(scores.float(), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        clock.tick()
    clock.report()
    print(f"loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
