"""What a job that trains runs beside its model: no compiler that is given the model sees it."""

from __future__ import annotations

import numpy as np

from findwall.attribute.averages import averages
from findwall.attribute.device_time import rows_of
from findwall.attribute.facts import Facts, found_once
from findwall.attribute.recorded import unrecorded_rows
from findwall.model.events import Bool
from findwall.model.intervals import I64


@found_once
def rows_beside_the_model(facts: Facts) -> I64:
    """Device rows without gradients, and those of an average of the weights."""
    return np.union1d(unrecorded_rows(facts), rows_of(facts, averages(facts)))


@found_once
def beside_the_model(facts: Facts) -> Bool:
    """Which atoms are of such rows."""
    found: Bool = np.isin(rows_of(facts, np.arange(len(facts.atoms.index))), rows_beside_the_model(facts))
    return found
