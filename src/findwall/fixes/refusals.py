"""Why fixes are not made, where several have the same reason."""

from __future__ import annotations

from findwall.facts.step_traits import graph_share, on_cores
from findwall.fixes import takes_nothing, unless
from findwall.model.catalogue import MAJORITY_SHARE

ON_CORES = unless("device/cores", on_cores, obvious=True)
REPLAYED = unless("graph/replayed-already", lambda facts: graph_share(facts) > MAJORITY_SHARE)
CACHED = unless("allocator/cached", takes_nothing("allocator"))
