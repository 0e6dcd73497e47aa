"""Attention is written out, so the matrix of scores goes through memory several times.

What it finds:
Every kernel on a tensor of [batch × heads, queries, keys] that a softmax and a batched matmul share:
the products, the scale, the mask, the softmax, dropout, copies, and all their backwards.

Why it costs:
The scores grow with the square of the sequence. Written out they are moved to memory and back by every
op that touches them. A fused attention computes them tile by tile on chip and writes none of them.

How it is told apart:
By shape: a softmax over the last dimension whose shape is also a batched matmul's result or operand.
Matmuls among them that already run at the ceiling stay at-the-roof.

What helps:
sdpa: torch.nn.functional.scaled_dot_product_attention (FlashAttention or memory-efficient kernels,
also with a mask or bias); flex_attention for unusual masks. torch-compile recognises the plain pattern, as
does reduce-overhead, the same with graphs around it; bf16-autocast halves the matrix.
Where much of it is forward work without gradients: evaluate-less-often.
"""

from __future__ import annotations

from findwall.causes import Cause, Claim, Told, known
from findwall.step.step_facts import StepFacts
from findwall.work.fusion import score_shapes

MATH_PATH = "aten::_scaled_dot_product_attention_math"  # under the call, where no fused kernel takes it


def says(facts: StepFacts) -> Told:
    shapes = sorted(score_shapes(facts.timeline), key=lambda one: (-one[0] * one[1] * one[2], one))
    largest = f"[{'×'.join(str(extent) for extent in shapes[0])}]" if shapes else None
    on_math = MATH_PATH in facts.timeline.names
    fact = Claim("unfused-attention/op-by-op", {"on_math_path": on_math}, known(shapes=largest))
    return Told(fact, Claim("advise/sdpa/math-path" if on_math else "advise/sdpa"))


CAUSE = Cause("unfused-attention", says)
