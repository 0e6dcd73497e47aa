"""Tokens that only fill a batch up: what is done for those behind the longest sample.

Samples of several lengths are filled up to one length. Behind the end of the longest of a batch there is
nothing but filling, in all of them: whatever works on these tokens works for nobody. How many there are is
looked at where tokens are looked up in a table.
"""

from __future__ import annotations

import numpy as np

from findwall.dataflow.linking import Flow, judged
from findwall.dataflow.row_ops import ALL, RowOps
from findwall.dataflow.usefulness import reached_from
from findwall.model.dataflow import FILLED
from findwall.model.intervals import F64


def filled_rows(flow: Flow) -> tuple[F64, dict[int, int]]:
    """For each row of what was observed, of its outermost op's work the share that is for tokens before the
    end of the longest sample; and for those with a share under 1 the op that looks the tokens up."""
    return _Filled(flow).found()


class _Filled(RowOps):
    def found(self) -> tuple[F64, dict[int, int]]:
        left = np.full(len(self._observed), ALL)
        by: dict[int, int] = {}
        heads = judged(self._flow)
        for lookup, (used, length) in self._looked_at(heads.tolist()).items():
            behind = reached_from(self._flow, np.array([lookup]))
            for head in heads[behind[heads]].tolist():
                if used < length and self._has_tokens(head, length, lookup):
                    left[head], by[head] = used / length, lookup
        return left, by

    def _looked_at(self, heads: list[int]) -> dict[int, tuple[int, int]]:
        """Lookups right behind a look at their tokens: how many places any sample uses, and how many there
        are."""
        observed, found = self._observed, {}
        lookups = np.array([head for head in heads if self.name(head) == "embedding"], np.int64)
        for at, name in enumerate(observed.names):
            if name.startswith(FILLED):
                used, _, length = name.removeprefix(FILLED).partition("/")
                for row in np.flatnonzero(observed.name == at).tolist():
                    found.update({int(one): (int(used), int(length)) for one in lookups[lookups > row][:1]})
        return found

    def _has_tokens(self, head: int, length: int, lookup: int) -> bool:
        """Whether it works on all places of the samples: one of its dimensions is as long, or holds them of
        all samples."""
        tokens = [operand.elements for operand in self.operands(lookup)[-1:]]
        return any(one in (length, *tokens) for operand in self.operands(head)[:1] for one in operand.shape)
