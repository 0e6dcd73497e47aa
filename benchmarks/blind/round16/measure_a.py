"""Plain and fixed step times of this folder's seven jobs, each in a fresh process: two rounds where the time allows.

    OUT=/somewhere [JOB_ARGS="--tiny --cpu"] [LIMIT_S=150] python measure_a.py
"""
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(os.environ.get("OUT", HERE), "measured_a.json")
EXTRA = os.environ.get("JOB_ARGS", "").split()
LIMIT = float(os.environ.get("LIMIT_S", "150"))
EACH = 25.0
# job: (steps, the fix that counts, others)
JOBS = {
    "voxel_reg": (24, ["box"], ["stack"]),
    "scene_nerf": (80, ["device_pick"], ["bf16"]),
    "arm_traj": (60, ["compiled"], ["cdist"]),
    "timbre_synth": (40, ["fundamental"], []),
    "photo_embed": (20, [], []),
    "clip_actions": (24, ["per_clip"], ["bias_once"]),
    "upscale_gan": (20, ["detach"], ["freeze_d"]),
}


def once(job, variant, steps):
    cmd = [sys.executable, os.path.join(HERE, job + ".py"), "--steps", str(steps)] + EXTRA
    if variant != "plain":
        cmd += ["--fix", variant]
    try:
        p = subprocess.run(cmd, capture_output=True, text=True, timeout=EACH)
    except subprocess.TimeoutExpired:
        return None, "longer than %g s" % EACH
    m = re.search(r"MEAN_STEP_MS ([0-9.]+)", p.stdout)
    if p.returncode or not m:
        return None, (p.stderr.strip().splitlines() or ["no output"])[-1][:200]
    return float(m.group(1)), p.stdout.strip().splitlines()[-1]


def main():
    began, took, results, notes = time.time(), {}, {}, {}
    full = [(j, v) for j, (_, a, b) in JOBS.items() for v in ["plain"] + a + b]
    short = [(j, v) for j, (_, a, _) in JOBS.items() for v in ["plain"] + a]
    for rnd in range(2):
        todo = full
        if rnd:
            left = LIMIT - (time.time() - began)
            todo = next((c for c in (full, short) if sum(took[x] for x in c) <= left), None)
            if todo is None:
                print("round 2 not started: %.0f s left" % left)
                break
        for job, variant in todo:
            t = time.time()
            ms, note = once(job, variant, JOBS[job][0])
            took[job, variant] = time.time() - t
            if ms is None:
                notes[job, variant] = note
                print("%s %s: %s" % (job, variant, note), flush=True)
            else:
                results.setdefault(job, {}).setdefault(variant, []).append(ms)
                notes[job, variant] = note
            with open(OUT, "w") as f:
                json.dump(results, f, indent=1)
    print("%-14s %-14s %10s %8s  %s" % ("job", "variant", "ms", "speedup", "last line"))
    for job, variant in full:
        got = results.get(job, {}).get(variant)
        base = results.get(job, {}).get("plain")
        if got:
            print("%-14s %-14s %10.3f %8s  %s %s" % (job, variant, min(got), "%.2fx" % (min(base) / min(got)) if base else "-",
                                                 "/".join("%.2f" % g for g in got), notes[job, variant]))
        else:
            print("%-14s %-14s %10s %8s  %s" % (job, variant, "-", "-", notes.get((job, variant), "")))
    print("%.0f s in all" % (time.time() - began))


if __name__ == "__main__":
    main()
