"""What lies between the last product of a forward pass and the first of its backward pass: the loss, mostly.

Whether a function of its own works it out or the model itself, a trace without frames does not show: a
compiler that is given the model alone may not see it.
"""

from __future__ import annotations

import numpy as np

from findwall.attribute.device_time import of_class, rows_of
from findwall.attribute.facts import Facts, found_once
from findwall.model.catalogue import MATRIX_CLASSES
from findwall.model.intervals import I64


@found_once
def behind_the_products(facts: Facts) -> I64:
    """The atoms of it, forward and backward."""
    row, launch = facts.queue.row, facts.links.launch[facts.queue.row]
    back = (launch >= 0) & facts.links.backward[np.maximum(launch, 0)]
    products = np.flatnonzero(np.isin(row, rows_of(facts, np.flatnonzero(of_class(facts, *MATRIX_CLASSES)))))
    if len(products) == 0:
        return np.zeros(0, np.int64)
    place = np.arange(len(row))
    before, after = np.searchsorted(products, place) - 1, np.searchsorted(products, place, side="right")
    known = (before >= 0) & (after < len(products)) & ~np.isin(place, products)
    before, after = products[np.maximum(before, 0)], products[np.minimum(after, len(products) - 1)]
    mine = known & ~back[before] & back[after] & (facts.queue.step[before] == facts.queue.step[after])
    found: I64 = np.flatnonzero(np.isin(rows_of(facts, np.arange(len(facts.atoms.index))), row[mine]))
    return found
