"""HTA (PyPI's traceinsight): load one trace, then its main analyses. Runs in its own venv."""

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

analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
outcome = {}
for name in ANALYSES:
    try:
        getattr(analysis, name)(visualize=False)
        outcome[name] = "done"
    except Exception as error:
        outcome[name] = f"failed: {type(error).__name__}"
print(json.dumps(outcome))
