"""How large the page is, how long it takes to write and to open, and how it moves.

    python benchmarks/page.py [--events N] [--million]

Draws the page of a step of 100,000 events (made here: ops that nest, calls, kernels on two streams), opens it
in Chromium and pans over it: frames a second with every event in the picture, zoomed in, and while a search
lights up. `--million` also writes the page of the trace of 1,000,000 events that `ingest.py` reads. Bars: 30
frames a second on two cores; a usual page opens in under 0.5 s; the million under 5 MB and 3 s on top of the
verdict.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from browser import Browser, find_chromium  # noqa: E402
from findwall import api  # noqa: E402
from findwall.examine.series import gather  # noqa: E402
from findwall.report.page import to_page  # noqa: E402

WORK = ROOT / ".benchmark"
STEPS = 3  # in the trace; one of them is drawn
PER_OP = 5  # events: an op, two inside it, a launch, a kernel
FRAMES = 120
SLOWED = 6  # times, by the browser itself: shows that a slow page would be seen
# Real time between frames that have been put on the screen, and what the script itself takes of each. The way
# turns before the edge is reached: every frame is another picture.
PANNING = """
new Promise(done => {
  const canvas = document.getElementById("events"), took = [], own = [], pictures = new Set();
  const press = key => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  canvas.focus();
  for (let at = 0; at < 2; at++) press("ArrowRight");
  let last = performance.now(), left = %d, at = 0;
  const move = () => {
    const now = performance.now();
    took.push(now - last);
    last = now;
    if (--left <= 0) { done({ took: took.slice(5), own: own.slice(5), pictures: pictures.size }); return; }
    press(at++ %% 4 < 2 ? "ArrowLeft" : "ArrowRight");  // drawn in the next frame
    requestAnimationFrame(() => {
      own.push(performance.now() - document.timeline.currentTime);
      if (left %% 30 < 3) pictures.add(canvas.toDataURL());
      move();
    });
  };
  requestAnimationFrame(move);
})
"""


def write_trace(path: Path, events: int) -> None:
    """A trace whose steps hold so many events each."""
    ops = events // PER_OP
    rows: list[dict[str, object]] = []
    now, correlation, chance = 0.0, 0, random.Random(0)
    for step in range(STEPS):
        began = now
        for _ in range(ops):
            correlation += 1
            length = round(8.0 + chance.expovariate(0.3), 3)
            rows += _op(now, length, correlation, chance.randrange(40))
            now += length + round(chance.random(), 3)
        name = f"ProfilerStep#{step}"
        rows.append(_row(name, "user_annotation", began, now - began - 0.5, 1, 1))
    device = {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150_000_000_000}
    path.write_text(json.dumps({"deviceProperties": [device], "traceEvents": rows}))


def _op(at: float, length: float, correlation: int, kind: int) -> list[dict[str, object]]:
    return [
        _row(f"aten::op_{kind}", "cpu_op", at, length, 1, 1),
        _row(f"aten::inner_{kind}", "cpu_op", at + 1, length - 2, 1, 1),
        _row("aten::empty", "cpu_op", at + 1.5, 1.0, 1, 1),
        _row("cudaLaunchKernel", "cuda_runtime", at + 4, 3.0, 1, 1, correlation=correlation),
        _row(
            f"void kernel_{kind}<float>(float*)",
            "kernel",
            at + 8,
            length / 2 + kind / 40,
            0,
            7 + kind % 2,
            correlation=correlation,
            device=0,
            stream=7 + kind % 2,
        ),
    ]


def _row(name: str, cat: str, ts: float, dur: float, pid: int, tid: int, **args: int) -> dict[str, object]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid, "args": args}


def draw(trace: Path, page: Path) -> dict[str, float]:
    """Write the page; how long that took on top of the verdict, and how large it is."""
    begun = time.perf_counter()
    run, found = api.look(trace)
    verdict = time.perf_counter()
    series = gather(run, found.facts)
    page.write_text(to_page(found.diagnosis, series, "benchmark"))
    return {
        "events_drawn": series.timeline.events if series.timeline is not None else 0,
        "verdict_s": round(verdict - begun, 2),
        "page_s": round(time.perf_counter() - verdict, 2),
        "page_bytes": page.stat().st_size,
    }


def pan(browser: Browser) -> dict[str, float]:
    found = browser.run(PANNING % FRAMES)
    assert found["pictures"] > 1, "it did not move"
    return {
        "frames_per_s": round(1000 / statistics.mean(found["took"]), 1),
        "slowest_frame_ms": round(max(found["took"]), 1),
        "script_ms": round(statistics.median(found["own"]), 1),
    }


def moves(browser: Browser, page: Path) -> dict[str, object]:
    browser.open(page)
    opened = browser.run("performance.getEntriesByType('navigation')[0].loadEventEnd")
    browser.run("new Promise(done => setTimeout(done, 800))")
    browser.run("document.getElementById('events').focus(); 1")
    browser.press("+")  # all but a little is seen, so that there is somewhere to go
    found: dict[str, object] = {"opens_ms": round(opened), "most_in_the_picture": pan(browser)}
    for _ in range(8):
        browser.press("+")
    found["zoomed_in"] = pan(browser)
    browser.press("0")
    browser.press("+")
    browser.run(
        "{ const find = document.getElementById('find'); find.value = 'op_1';"
        " find.dispatchEvent(new Event('input')); }"
    )
    found["while_searching"] = pan(browser)
    assert browser.errors() == []
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--million", action="store_true")
    given = parser.parse_args()
    WORK.mkdir(exist_ok=True)
    found: dict[str, object] = {}
    trace, page = WORK / "long_step.json", WORK / "long_step.html"
    write_trace(trace, given.events)
    found["long_step"] = draw(trace, page)
    usual = WORK / "usual.html"
    found["usual"] = draw(ROOT / "tests" / "fixtures" / "blind" / "dit_lightning", usual)
    program = find_chromium()
    if program is None:
        print("no Chromium is installed (`make browser`): nothing is opened", file=sys.stderr)
    else:
        with Browser(program) as browser:
            found["long_step_moves"] = moves(browser, page)
            browser.call("Emulation.setCPUThrottlingRate", {"rate": SLOWED})
            found[f"long_step_moves_{SLOWED}_times_slowed"] = moves(browser, page)
            browser.call("Emulation.setCPUThrottlingRate", {"rate": 1})
            found["usual_moves"] = moves(browser, usual)
    if given.million:
        from make_trace import Template, real_traces
        from make_trace import write_trace as write_million

        million = WORK / "1m.json"
        if not million.is_file():
            write_million(million, 1_000_000, [Template(path) for path in real_traces()])
        found["million"] = draw(million, WORK / "million.html")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
