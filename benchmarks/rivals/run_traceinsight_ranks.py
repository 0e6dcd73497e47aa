"""HTA (PyPI's traceinsight): load a folder of ranks, then its main analyses. Runs in its own venv."""

from __future__ import annotations

import json
import sys

from hta.trace_analysis import TraceAnalysis

ANALYSES = (
    "get_temporal_breakdown",
    "get_gpu_kernel_breakdown",
    "get_idle_time_breakdown",
    "get_comm_comp_overlap",
)

if __name__ == "__main__":  # it starts processes of its own
    analysis = TraceAnalysis(trace_dir=sys.argv[1])
    outcome = {}
    for name in ANALYSES:
        try:
            getattr(analysis, name)(visualize=False)
            outcome[name] = "done"
        except Exception as error:
            outcome[name] = f"failed: {type(error).__name__}"
    print(json.dumps(outcome))
