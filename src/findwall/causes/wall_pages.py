"""The five walls, a page each: what a step waits for, how that shows, what moves it and what does not."""

from __future__ import annotations

OVERVIEW: dict[str, str] = {
    "compute": """The step waits for arithmetic: matrix products and convolutions fill it.

What it is:
The device has work all the time, and most of that time is in matmuls, convolutions or attention.
How fast those can go is fixed by the chip's FLOP/s in the number format they run in. This is the
wall you want to end at: a step whose matmuls run near the ceiling does what the hardware was
bought for.

How it shows:
All of the first three questions are answered yes: steps are stable, the device is busy, busy time
is in matmuls. What remains is the fourth: are they near the ceiling? If they are not, the fast path
is off (fp32 where tensor cores could serve), the shapes do not fit the tensor cores, work is done
twice (recompute), or the clocks are held down.

What helps:
Tensor cores first: TF32 or bf16 instead of fp32, dimensions that are multiples of 8 or better 64.
Then better kernels. At the roof only less work helps: lower precision, a smaller model, or more
hardware.

What does not help:
More loader workers, pinned memory, fused pointwise kernels, CUDA graphs: the device is not waiting
for any of them.
""",
    "bandwidth": """The step waits for memory: kernels move far more bytes than they do arithmetic.

What it is:
A kernel that does a few operations for each number it loads is over when the bytes have moved.
Additions, activations, norms, softmax, dropout, casts and optimizer updates are all of this kind,
whatever the chip's FLOP/s. Below the ridge of the roofline (FLOP/s divided by bytes/s, a few
hundred FLOPs per byte on recent GPUs) only fewer bytes make it faster.

How it shows:
The device is busy but not in matmuls: the trace is full of short kernels that each read a tensor
and write it back. Attention written out as softmax(QK^T)V moves a matrix of sequence length squared
to memory and back several times.

What helps:
Fusion: a chain of pointwise kernels becomes one that reads once and writes once (torch.compile),
attention becomes one kernel (scaled_dot_product_attention), the optimizer becomes one (fused=True).
16-bit activations halve what is left.

What does not help:
Faster matmuls or more loader workers. CUDA graphs save launches, not bytes.
""",
    "overhead": """The step waits for the host: Python, the dispatcher, a synchronisation or the allocator.

What it is:
The device runs what the host has queued. When the host is slower than the device, the queue runs
empty and the device sits idle between kernels. A launch costs the host microseconds whether the
kernel behind it takes one or a thousand.

How it shows:
Gaps between kernels while ops are being issued. The step takes as long with half the batch. Or the
host stops on purpose: .item(), .cpu(), print(loss) and a Python `if` on a device value all wait
until the queue has drained, and the device then waits while it is filled again. Under a profiler
this wall looks larger than it is, because every recorded host event costs time: only a step time
measured without it can tell.

What helps:
Fewer and larger launches: torch.compile, CUDA graphs, a larger batch, foreach or fused optimizers.
For synchronisation, keep values on the device and look at them every n steps. For host work, do it
less often or in another thread.

What does not help:
Lower precision, faster kernels: the device would only wait longer.
""",
    "data": """The step waits for its next batch: the loader or the copy to the device is too slow.

What it is:
A batch has to be read, decoded, transformed, collated and copied before the device can start on it.
Done one after the other in the training process, all of that time is added to the step; done ahead
in workers, it disappears as long as the workers together keep up.

How it shows:
The device idles at the start of each step while the host sits in the loader's `next` or in a
host-to-device copy. Ordinary (pageable) memory is copied through a staging buffer at the host's
pace and blocks the call.

What helps:
Workers (num_workers, persistent_workers, prefetch_factor) up to what the cores can carry; cheaper
or pre-computed transforms; formats that decode fast; pin_memory=True with non_blocking=True copies.

What does not help:
Anything that makes the model faster: the device would only wait longer.
""",
    "comms": """The step waits for other devices: collectives that do not run beside computation.

What it is:
Data-parallel training averages gradients, sharded training gathers parameters, tensor parallelism
exchanges activations. A collective that runs while the device computes is free; one that the
computation has to wait for is added to the step.

How it shows:
Communication kernels with nothing beside them. Their time includes waiting for the slowest rank, so
that one rank alone cannot tell a slow link from a late neighbour.

What helps:
Overlap (gradient buckets that leave during backward, prefetched gathers), fewer and larger
messages, no_sync during gradient accumulation, a faster link or a layout that keeps heavy traffic
inside a node, an even split of work.

What does not help:
Faster kernels alone: less computation leaves less to hide communication behind.
""",
}
