"""Recommend tracks for playlists: LightGCN over ten million edges, messages gathered and scattered by hand.

Domain: recommendation on a graph, own code, fp32, fused Adam.
Why: a layer copies one row of 64 floats for each of 10 M edges (2.6 GB written, then read again) and adds them to their
    receivers with atomics. Backward does both again the other way round. There is no matmul in the job at all: the
    step is rows fetched and rows added.
Trap: the GPU is fully busy and nothing is wrong with dtype, host or loader; the table (77 MB) does nearly fit in L2, so
    bytes by name and bytes by wire differ. BPR sampling and the lookups of the batch are small.
Fixes: csr-spmm (the same sum as one sparse-dense product: no message is ever written).
"""

import torch
import torch.nn.functional as F

from common import Clock, arguments

WALLS = [["bandwidth", "gather-scatter"]]
FIXES = ["csr-spmm"]
TRUTH_STEPS = 260


class SymmetricSpmm(torch.autograd.Function):
    """A @ x for a symmetric sparse A: its own transpose in backward."""

    @staticmethod
    def forward(ctx, adjacency, x):
        ctx.adjacency = adjacency
        return adjacency @ x

    @staticmethod
    def backward(ctx, grad):
        return None, ctx.adjacency @ grad.contiguous()


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    playlists, tracks, plays, width, batch = (200_000, 100_000, 5_000_000, 64, 8192) if args.gpu else (
        2000, 1000, 20_000, 16, 256)
    nodes, layers = playlists + tracks, 3
    device = args.device

    owner = torch.randint(playlists, (plays,), device=device)
    track = playlists + (torch.rand(plays, device=device).square() * tracks).long().clamp_(max=tracks - 1)
    source, target = torch.cat([owner, track]), torch.cat([track, owner])
    degree = torch.bincount(target, minlength=nodes).clamp_(min=1)
    norm = degree.float().rsqrt()[:, None]

    if args.fix == "csr-spmm":
        ones = torch.ones(2 * plays, device=device)
        adjacency = torch.sparse_coo_tensor(torch.stack([target, source]), ones, (nodes, nodes))
        adjacency = adjacency.coalesce().to_sparse_csr()

        def gather_neighbours(x):
            return SymmetricSpmm.apply(adjacency, x)
    else:
        def gather_neighbours(x):
            messages = x.index_select(0, source)
            return torch.zeros_like(x).index_add(0, target, messages)

    table = torch.nn.Parameter(0.1 * torch.randn(nodes, width, device=device))
    optimizer = torch.optim.Adam([table], lr=1e-3, fused=True)

    clock = Clock(args.steps)
    for step in range(args.steps):
        x, total = table, table
        for _ in range(layers):
            x = norm * gather_neighbours(norm * x)
            total = total + x
        total = total / (layers + 1)

        chosen = torch.randint(plays, (batch,), device=device)
        other = torch.randint(playlists, nodes, (batch,), device=device)
        who = total.index_select(0, owner[chosen])
        liked = total.index_select(0, track[chosen])
        disliked = total.index_select(0, other)
        loss = -F.logsigmoid((who * (liked - disliked)).sum(1)).mean()
        loss = loss + 1e-4 * (who.square().mean() + liked.square().mean() + disliked.square().mean())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 64 == 63:
            print(f"step {step + 1} bpr {loss.item():.4f}", flush=True)
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
