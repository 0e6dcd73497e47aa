"""PyTorch's TensorBoard plugin: parse one trace and make the data of its views. Runs in its own venv."""

from __future__ import annotations

import json
import sys
import tempfile

from torch_tb_profiler.profiler.data import RunProfileData
from torch_tb_profiler.profiler.run_generator import RunGenerator

with tempfile.TemporaryDirectory() as cache:
    data = RunProfileData.parse("worker", None, sys.argv[1], cache)
    profile = RunGenerator("worker", None, data).generate_run_profile()
print(json.dumps({"parse": "done", "views": "done" if profile.overview else "failed: nothing in them"}))
