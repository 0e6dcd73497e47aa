#!/bin/bash
# From the repository root on the GPU machine: bash benchmarks/blind/round12/measure.sh
export HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)" OUT="${OUT:-/tmp/round12_out}" PYTHON="${PYTHON:-python3}"
mkdir -p "$OUT"
exec "$PYTHON" - <<'PY'
import json, os, re, signal, subprocess, time
here, out, py = os.environ["HERE"], os.environ["OUT"], os.environ["PYTHON"]
JOBS = {  # name: (steps, fixes)
    "resnet_probe": (50, ["probe_on_log"]),
    "lora_tune": (40, ["factored"]),
    "rel_gcn": (40, ["node_side"]),
    "masked_items": (50, ["masked_only"]),
    "sac_humanoid": (80, ["array_memory"]),
    "guided_sampler": (75, ["encode_once", "batched_guidance"]),
    "speaker_id": (50, ["partial_read"]),
    "site_forecast": (50, ["stacked", "one_optimizer"]),
    "instance_masks": (40, ["batched_paste", "host_boxes"]),
    "clip_pairs": (40, ["builtin_gelu"]),
    "texture_gan": (60, ["rare_eval"]),
    "wearable_tasks": (40, ["single"]),
    "vit_embed": (24, []),
    "kernel_eig": (80, []),
}
SOFT, HARD, PER = 318.0, 345.0, 25.0
extra = os.environ.get("JOB_ARGS", "").split()
steps_override = os.environ.get("JOB_STEPS")
t0, res = time.time(), {}
now = lambda: time.time() - t0

def one(job, fix, steps):
    cmd = [py, os.path.join(here, job + ".py"), "--steps", str(steps_override or steps), *extra] + (["--fix", fix] if fix else [])
    p = subprocess.Popen(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                         env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    try:
        text, _ = p.communicate(timeout=max(1.0, min(PER, HARD + 10 - now())))
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        text, _ = p.communicate()
        print(f"  {job} [{fix or 'plain'}] TIMEOUT", flush=True)
        return None
    m = re.search(r"MEAN_STEP_MS ([\d.]+)", text)
    if p.returncode or not m:
        print(f"  {job} [{fix or 'plain'}] FAILED rc {p.returncode}\n    " + "\n    ".join(text.strip().splitlines()[-6:]), flush=True)
        return None
    return float(m.group(1))

def save():
    tmp = os.path.join(out, "measured.json.tmp")
    with open(tmp, "w") as f:
        json.dump(res, f, indent=1)
    os.replace(tmp, os.path.join(out, "measured.json"))

stopped = False
for rnd in (1, 2):
    for job, (steps, fixes) in JOBS.items():
        start, line = now(), []
        for fix in [None, *fixes]:
            if now() > (SOFT if rnd == 2 else HARD):
                stopped = True
                break
            ms = one(job, fix, steps)
            lst = res.setdefault(job, {}).setdefault(fix or "plain", [])
            if ms is not None:
                lst.append(ms)
            line.append(f"{fix or 'plain'} {ms if ms is not None else '-'}")
            save()
        print(f"round {rnd} {job:15s} took {now() - start:5.1f} s, elapsed {now():6.1f} s | " + " | ".join(line), flush=True)
        if stopped:
            break
    if stopped:
        print(f"stopped in round {rnd} at {now():.0f} s", flush=True)
        break

print(f"\n{'job':16s}{'variant':20s}{'ms':>24s}{'speed-up':>10s}")
mean = lambda v: sum(v) / len(v) if v else None
for job, r in res.items():
    base = mean(r.get("plain", []))
    for k, v in r.items():
        m = mean(v)
        up = f"{base / m:.2f}x" if base and m and k != "plain" else ""
        print(f"{job:16s}{k:20s}{', '.join(f'{x:.2f}' for x in v):>24s}{up:>10s}")
save()
print(f"total {now():.0f} s, {os.path.join(out, 'measured.json')}")
PY
