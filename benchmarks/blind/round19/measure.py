"""Times every job of this folder plain and with each of its fixes, and writes the figures into truth.json.

    python measure.py [--within 520] [--jobs a,b] [--size cpu --steps 6]

Each job's forms take turns in fresh processes (plain, fix, plain, fix, ...): one round over all jobs after another,
three in all. What was measured is kept in measured.json, and a later call takes up where the last one stopped,
so the work can be cut into several calls. With OUT set in the environment both files are written there (and
measured.json is read from here if it is not there yet). Figures are medians.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.environ.get("OUT") or HERE


def run(command, limit):
    """Standard output, or None and what went wrong; a process over its limit goes with its loader workers."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=HERE, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, f"longer than {limit:.0f} s"
    if process.returncode:
        return None, (err.strip().splitlines() or [f"exit {process.returncode}"])[-1][:200]
    return out, ""


def once(job, form, args, limit):
    command = [sys.executable, os.path.join(HERE, job + ".py"), "--size", args.size]
    if args.steps:
        command += ["--steps", str(args.steps)]
    if form != "plain":
        command += ["--fix", form]
    out, wrong = run(command, limit)
    found = re.search(r"mean step ms ([0-9.]+)", out or "")
    if not found:
        return None, wrong or "no step time in the output"
    return float(found.group(1)), out.strip().splitlines()[-1]


def save(name, value):
    path = os.path.join(OUT, name)
    with open(path + ".part", "w") as file:
        json.dump(value, file, indent=1)
        file.write("\n")
    os.replace(path + ".part", path)


def fill(truth, measured):
    def middle(job, form):
        got = measured.get(job, {}).get(form)
        return statistics.median(got) if got else None

    for job, entry in truth.items():
        plain = middle(job, "plain")
        if plain is None:
            continue
        entry["step_ms"] = round(plain, 3)
        for name, fix in entry["fixes"].items():
            fixed = middle(job, name)
            if fixed is not None:
                fix["step_ms"], fix["speedup"] = round(fixed, 3), round(plain / fixed, 3)
    return truth


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--within", type=float, default=520, help="seconds for this call, all processes together")
    parser.add_argument("--limit", type=float, default=60, help="seconds for one process")
    parser.add_argument("--times", type=int, default=3, help="processes for each form")
    parser.add_argument("--jobs", default=None, help="only these, comma separated")
    parser.add_argument("--first-fix", action="store_true", help="of each job's fixes only the first")
    parser.add_argument("--size", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--steps", type=int, default=None)
    args = parser.parse_args()

    began = time.monotonic()
    with open(os.path.join(HERE, "truth.json")) as file:
        truth = json.load(file)
    jobs = args.jobs.split(",") if args.jobs else list(truth)
    count = 1 if args.first_fix else None
    forms = [(job, form) for job in jobs for form in ["plain", *list(truth[job]["fixes"])[:count]]]
    measured = {}
    for folder in (HERE, OUT):
        if os.path.exists(os.path.join(folder, "measured.json")):
            with open(os.path.join(folder, "measured.json")) as file:
                measured = json.load(file)
    took, notes, left_out = {}, {}, []

    for turn in range(args.times):
        for job, form in forms:
            if len(measured.get(job, {}).get(form, [])) > turn or notes.get((job, form), "").startswith("failed"):
                continue
            left = args.within - (time.monotonic() - began)
            if left < took.get((job, form), 20):
                left_out.append(f"{job} {form} ({turn + 1})")
                continue
            start = time.monotonic()
            ms, last = once(job, form, args, min(args.limit, left))
            took[job, form] = (time.monotonic() - start) * 1.1
            if ms is None:
                notes[job, form] = f"failed: {last}"
                print(f"{turn + 1} {job} {form}: {notes[job, form]}", flush=True)
                continue
            notes[job, form] = last
            print(f"{turn + 1} {job} {form}: {ms:.3f} ms, {took[job, form]:.1f} s, {last}", flush=True)
            measured.setdefault(job, {}).setdefault(form, []).append(ms)
            save("measured.json", measured)
            save("truth.json", fill(truth, measured))

    save("truth.json", fill(truth, measured))
    if left_out:
        print(f"\nno time for {len(left_out)}: {', '.join(left_out)}"[:1500])
    print(f"\n{'job':16s} {'form':16s} {'ms':>9s} {'times':>7s}  each process")
    for job, form in forms:
        got, plain = measured.get(job, {}).get(form), measured.get(job, {}).get("plain")
        if not got:
            print(f"{job:16s} {form:16s} {'-':>9s} {'':7s}  {notes.get((job, form), '')}")
            continue
        ms = statistics.median(got)
        ratio = f"{statistics.median(plain) / ms:.2f}x" if plain and form != "plain" else ""
        print(f"{job:16s} {form:16s} {ms:9.3f} {ratio:>7s}  {' '.join(f'{x:.2f}' for x in got)}")
    print(f"{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
