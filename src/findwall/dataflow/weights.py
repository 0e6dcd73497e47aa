"""Which ops read weights: parameters, or what is made of nothing else and is as large.

A cast of a weight, its exponential, a weight after an inner step of learning: a layer reads it as it would
read the weight itself. A sum over a weight is none, so a penalty on weights makes no layer of the loss.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from findwall.dataflow.linking import BEFORE, Flow, in_backward, of_ours
from findwall.model.dataflow import READ
from findwall.model.events import Bool


class Weights(msgspec.Struct, frozen=True):
    """Rows of outermost ops."""

    read: Bool  # a weight
    made: Bool  # of weights and gradients alone

    @property
    def layer(self) -> Bool:
        """A weight meets something else."""
        return self.read & ~self.made


def weights_of(flow: Flow, parameters: set[int], kept: set[int]) -> Weights:
    """`kept`: storages of no meaning here, such as an average that weights are mixed into. What is made of
    these alone has none either."""
    observed = flow.observed
    backward = in_backward(observed)
    read, made, is_weight, of_kept = (np.zeros(len(observed), bool) for _ in range(4))
    sizes = [math.prod(length for _, length in region.dims) for region in observed.regions]
    size = np.array(sizes, np.int64)[observed.region] if sizes else np.zeros(0, np.int64)
    reader = flow.head[flow.reader]
    wanted = (reader >= 0) & ~backward[flow.reader]
    wanted[np.isin(flow.reader, of_ours(observed))] = False
    links: dict[int, list[tuple[int, int, int]]] = {}
    columns = (flow.writer[wanted], flow.storage[wanted], flow.use[wanted])
    for head, *link in zip(reader[wanted].tolist(), *(one.tolist() for one in columns), strict=True):
        links.setdefault(head, []).append((link[0], link[1], link[2]))
    for head in sorted(links):
        others, some, seen = False, False, set()
        for writer, storage, use in links[head]:
            maker = int(flow.head[writer]) if writer != BEFORE else BEFORE
            if storage in parameters or (maker >= 0 and is_weight[maker]):
                seen.add(int(size[use]))
            elif maker == BEFORE:
                # else memory that nobody has written yet
                others |= bool(flow.born[storage] == BEFORE) and storage not in kept
            elif maker != head and (made[maker] or backward[writer]):
                some = True
            elif maker != head:
                others |= storage not in kept and not of_kept[maker]
        read[head], made[head] = bool(seen), (some or bool(seen)) and not others
        of_kept[head] = not (others or some or seen)
        uses = observed.uses_of(head)
        given = size[uses][observed.way[uses] != READ].tolist()
        # A number may be a weight; one that others were mixed into is a sum over weights.
        same = seen.intersection(given) - ({1} if some else set())
        is_weight[head] = made[head] and bool(same)
    return Weights(read, made)
