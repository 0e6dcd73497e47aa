"""Update the rows of an embedding table that a step looked up, not the whole table.

What it does:
The gradient of `nn.Embedding` is a tensor as large as its table: zeros, and the few rows that the step looked
up. The optimizer then reads and writes table, gradient and states whole, though hardly a row of them changed.
A sparse gradient holds the looked-up rows alone, and an optimizer that takes it touches no others:

    emb = nn.Embedding(rows, width, sparse=True)
    for_table = torch.optim.SparseAdam([emb.weight], lr=…)
    for_rest = torch.optim.Adam(the_other_parameters, lr=…)

SGD and Adagrad take sparse gradients as they are. Libraries for large tables (torchrec, FBGEMM) do the update
in one kernel with the backward pass.

When it does not help:
A step looks up a fair part of the rows, the table is small beside the rest of the model, or it is used whole
elsewhere, as by an output layer that shares it: then its gradient is not sparse. `scale_grad_by_freq` has no
sparse form.

Risk:
Adam moves every row at each step by its momentum, and weight decay shrinks every row; SparseAdam leaves rows
alone until they are looked up again, and has no weight decay. So training changes: compare the losses.
Gradient clipping and some ways to train on several GPUs take no sparse gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from findwall.facts.embedding_tables import Table, Tables, sparse_tables, tables_ms
from findwall.facts.likely_times import launch_ns
from findwall.facts.user_lines import line_of
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    cannot_tell,
    gone,
    lines,
    no_use,
    rows_of,
)
from findwall.model.catalogue import MENTION_SHARE
from findwall.model.claims import known
from findwall.replay.change import Change, Drop, Issue, Replace, Scale
from findwall.replay.curves import curves
from findwall.step.call_names import optimizers
from findwall.units import NOT_ZERO_NS, ms
from findwall.work.work_facts import moving_ns

MOVES = ("unfused-optimizer", "memory-roof")
# Of SparseAdam, the one that does most: how often it reads or writes the looked-up rows, and in how many
# kernels. Counted in torch 2.11.
ROW_PASSES, ROW_KERNELS = 42, 40
NUMBER_BYTES = 4
TAKE_SPARSE = ("SGD", "Adagrad", "SparseAdam")  # optimizers that do as they are


def use(facts: Facts) -> Outcome:
    found = sparse_tables(facts)
    if not found.tables:
        return no_use("sparse-embedding/none")
    usable = [one for one in found.tables if not one.scaled and not one.elsewhere]
    if not usable:
        scaled = all(one.scaled for one in found.tables)
        return no_use("sparse-embedding/scaled") if scaled else cannot_tell("sparse-embedding/elsewhere")
    if facts.kernels.communication.any():
        return cannot_tell("sparse-embedding/shared")
    if found.untold:
        return cannot_tell("sparse-embedding/untold")
    spent = tables_ms(facts)
    if spent <= MENTION_SHARE * ms(facts.step):
        return no_use("sparse-embedding/little", spent_ms=spent)
    largest = max(usable, key=lambda one: one.rows * one.width)
    return Use(
        _claim(facts, largest, spent),
        _best(facts, found),
        tuple(cause for cause in MOVES if np.isin(found.atoms, facts.atoms.of(cause)).any()),
        likely=lambda made: _likely(facts, found, usable),
    )


def _claim(facts: Facts, table: Table, spent: float) -> Claim:
    names = optimizers(facts.timeline)
    figures = {
        "rows": table.rows,
        "width": table.width,
        "looked_up": table.looked_up,
        "spent_ms": spent,
        "takes_sparse": bool(names) and all(name in TAKE_SPARSE for name in names),
    }
    return Claim(
        "sparse-embedding/rows",
        figures,
        known(optimizer=next(iter(names), None)),
        lines(line_of(facts, table.op)),
    )


def _best(facts: Facts, found: Tables) -> Change:
    """All that goes through whole tables is gone, and of lists their share."""
    alone = found.share >= 1.0
    return gone(facts, found.atoms[alone]) + _lists(facts, found)


def _lists(facts: Facts, found: Tables) -> Change:
    """Of kernels that go through lists the tables' share: the longer the list, the more kernels it takes."""
    part = found.share < 1.0
    rows, share = rows_of(facts, found.atoms[part]), found.share[part]
    op = facts.kernels.op[facts.atoms.index[found.atoms[part]]]
    dropped: list[int] = []
    factor = np.ones(len(rows))
    for one in np.unique(op).tolist():
        mine = np.flatnonzero(op == one)
        length = facts.kernels.duration[facts.atoms.index[found.atoms[part]]][mine]
        kept = max(int(np.ceil(len(mine) * (1.0 - share[mine[0]]))), 1)
        left = float(length.sum()) * (1.0 - share[mine[0]])
        dropped += rows[mine[kept:]].tolist()
        factor[mine[:kept]] = left / max(float(length[:kept].sum()), NOT_ZERO_NS)
    gone_rows = np.array(sorted(set(dropped)), np.int64)
    return Change((Scale(rows, factor), Drop(gone_rows))) if len(rows) else Change()


def _likely(facts: Facts, found: Tables, tables: list[Table]) -> Change:
    """The looked-up rows in place of the tables: gathered, worked out and added back in passes of their own.
    What sorts and adds up the gradient today does so then as well."""
    moved = sum(one.looked_up * one.width * NUMBER_BYTES for one in tables)
    floor = moving_ns(facts, moved)
    if floor <= 0:
        return Change()
    passes = ROW_PASSES * float(curves().likely_ns("pointwise", np.array([floor]))[0])
    # One kernel of each step stands for all of theirs.
    order = np.argsort(facts.kernels.start[facts.atoms.index[found.atoms]], kind="stable")
    rows = rows_of(facts, found.atoms[order])
    _, last = np.unique(facts.steps.of_row[rows][::-1], return_index=True)
    stand_in = rows[len(rows) - 1 - last]
    best = _best(facts, found)
    kept = tuple(
        Drop(np.setdiff1d(edit.rows, stand_in)) if isinstance(edit, Drop) else edit for edit in best.edits
    )
    count = sum(one.calls for one in tables) * ROW_KERNELS
    return Change(
        (
            *kept,
            Replace(stand_in, np.full(len(stand_in), passes)),
            Issue(stand_in, np.full(len(stand_in), count * launch_ns(facts)), besides=True),
        )
    )


# -- one step of a table, both ways ------------------------------------------------------------------------


def plain(torch: Any, table: Any, ids: Any, weight: Any) -> Any:
    """The table after a step of SGD on a gradient as large as it is."""
    return _stepped(torch, table, ids, weight, sparse=False)


def cheaper(torch: Any, table: Any, ids: Any, weight: Any) -> Any:
    """The same on a sparse gradient."""
    return _stepped(torch, table, ids, weight, sparse=True)


def _stepped(torch: Any, table: Any, ids: Any, weight: Any, sparse: bool) -> Any:
    emb = torch.nn.Embedding.from_pretrained(table.detach().clone(), freeze=False, sparse=sparse)
    optimizer = torch.optim.SGD([emb.weight], lr=0.5)
    (emb(ids) * weight).sum().backward()
    assert emb.weight.grad.is_sparse is sparse
    optimizer.step()
    return emb.weight.detach()


FIX = Fix(MOVES, "needs-review", use, removes=True)
