"""Times every job plain and with each fix in fresh processes; writes $OUT/measured_b.json after each of them.

Two rounds, interleaved; the second gives up each process that would pass the soft limit (judged by its first run).
"""
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(os.environ.get("OUT", HERE), "measured_b.json")
LIMIT, EACH = 150.0, 25.0
STEPS = {"rerank_pairs": 50, "window_lm": 20, "relation_nodes": 50, "ssm_forecast": 50, "session_rec": 40,
         "replay_dqn": 150, "tdci_propagate": 24}
EXTRA = {("relation_nodes", "per_relation")}  # first round only

truth = json.load(open(os.path.join(HERE, "truth.json")))
todo = [(job, v) for job in truth for v in ["plain", *truth[job]["fixes"]]]
got, took, begin = {}, {}, time.time()
for rnd in range(2):
    for job, v in todo:
        spent = time.time() - begin
        if rnd and ((job, v) in EXTRA or (job, v) not in took or spent + took[job, v] > LIMIT):
            continue
        if spent > LIMIT:
            print(f"not started: {job} {v}", flush=True)
            continue
        cmd = [sys.executable, os.path.join(HERE, job + ".py"), "--steps", str(STEPS[job])]
        cmd += [] if v == "plain" else ["--fix", v]
        cmd += os.environ.get("JOB_ARGS", "").split()
        t = time.time()
        try:
            r = subprocess.run(cmd, capture_output=True, text=True, timeout=EACH)
            text, err = r.stdout, r.stderr
        except subprocess.TimeoutExpired:
            text, err = "", "timed out"
        took[job, v] = time.time() - t
        m = re.search(r"MEAN_STEP_MS ([0-9.]+)", text)
        if m:
            got.setdefault(job, {}).setdefault(v, []).append(float(m.group(1)))
            last = text.strip().splitlines()[-1]
            print(f"{rnd} {job} {v} {m.group(1)} ms ({took[job, v]:.1f} s) {last}", flush=True)
        else:
            print(f"{rnd} {job} {v} FAILED {err.strip()[-400:]}", flush=True)
            del took[job, v]
        with open(OUT, "w") as f:
            json.dump(got, f, indent=1)

print(f"\nin {time.time() - begin:.0f} s")
for job in truth:
    base = got.get(job, {}).get("plain")
    for v, ms in got.get(job, {}).items():
        ratio = f"{sum(base) / len(base) / (sum(ms) / len(ms)):6.2f}x" if base else ""
        print(f"{job:18s} {v:18s} {' '.join(f'{x:9.3f}' for x in ms)}  {ratio}")
