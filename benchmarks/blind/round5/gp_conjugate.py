"""A Gaussian process solved by conjugate gradients, one iteration a step.

Domain: science (geostatistics), own functional code, the iteration replayed as a CUDA graph.
Why: an iteration multiplies the 90112 x 90112 float32 kernel matrix (32 GB) with one vector: every value is read once for
     one multiply-add. The product streams memory at the ceiling and everything else in the graph is vectors.
Trap: float32 matrix products with the tensor cores unused look like a fast path left off; kernels in a graph have no
      shapes; the residual is read every 50 iterations.
Fixes: none (a narrower kernel matrix would be another method).
"""

import torch

from common import Clock, arguments

WALLS = [["bandwidth", "memory-roof"]]
FIXES = []
TRUTH_STEPS = 1500

RESTART = 50


def kernel_blocks(points, blocks, chunk):
    size = len(points) // blocks
    made = []
    for at in range(blocks):
        block = torch.empty(size, len(points), device=points.device)
        for row in range(0, size, chunk):
            near = torch.cdist(points[at * size + row : at * size + row + chunk], points)
            block[row : row + chunk] = torch.exp(-near)
        made.append(block)
    return made


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    device = args.device
    count, blocks, chunk = (90_112, 4, 2816) if args.gpu else (2048, 4, 256)
    noise = 0.1
    kernel = kernel_blocks(torch.rand(count, 3, device=device) * 20, blocks, chunk)
    size = count // blocks
    solution, residual, direction = (torch.zeros(count, device=device) for _ in range(3))
    product = torch.zeros(count, device=device)
    squared = torch.zeros((), device=device)

    def restart():
        residual.normal_()
        solution.zero_()
        direction.copy_(residual)
        squared.copy_(torch.dot(residual, residual))

    def iterate():
        for at, block in enumerate(kernel):
            torch.mv(block, direction, out=product[at * size : (at + 1) * size])
        product.add_(direction, alpha=noise)
        alpha = squared / torch.dot(direction, product)
        solution.add_(alpha * direction)
        residual.sub_(alpha * product)
        after = torch.dot(residual, residual)
        direction.mul_(after / squared).add_(residual)
        squared.copy_(after)

    with torch.no_grad():
        restart()
        step_once = iterate
        if args.gpu:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    iterate()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                iterate()
            step_once = graph.replay

        clock = Clock(args.steps)
        for step in range(args.steps):
            if step % RESTART == 0:
                if step % (4 * RESTART) == 0:
                    print(f"{step} {squared.item():.3e}", flush=True)
                restart()
            step_once()
            clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
