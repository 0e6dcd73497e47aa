"""Compile the blocks that a model repeats, one by one, instead of the model as a whole.

What it does:
`for block in model.layers: block.compile()` compiles the layer that a deep model is made of. The code made
for the first of them serves all the others, so the compiler is done in the time of one block instead of all,
and what it cannot trace around the blocks (embeddings, losses, caches, hooks) stays as it is.

When it does not help:
The model repeats nothing, or its time goes outside of what it repeats. Where `torch.compile(model)` gets
through, it fuses across blocks as well, and a step is as fast or faster: findwall tries this one where that
failed.

Risk:
As of torch.compile: results differ in the last bits, and changing shapes make it compile again. Before torch
2.5 each block is compiled for itself, and from the ninth on none is.
"""

from __future__ import annotations

from findwall.facts.rewritten_step import COMPILED_AWAY
from findwall.fixes import Fix, Outcome, cannot_tell
from findwall.fixes.compiler.compile_patch import compile_each_block
from findwall.fixes.compiler.compiling import TWICE
from findwall.fixes.compiler.repeated_blocks import compile_blocks
from findwall.step.step_facts import StepFacts

MOVES = ("unfused-pointwise", "launch-bound", *(one for one in COMPILED_AWAY if one != "unfused-pointwise"))


def use(_facts: StepFacts) -> Outcome:
    return cannot_tell("compile-blocks/not-shown")


FIX = Fix(
    MOVES,
    "changes-numerics",
    use,
    (TWICE,),
    apply=compile_blocks,
    patch=compile_each_block,
    plainer=("torch-compile",),
    compiles=True,
)
