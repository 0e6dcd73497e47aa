"""What rewrites give, said and got: a small job of each one's plain form, and the same in its cheaper form.

    python benchmarks/rewrites.py --out FILE [--only a,b] [--deadline S] [--tiny]
    python benchmarks/rewrites.py --job NAME [--form cheaper] [--seconds S] [--tiny]     one of the jobs alone

For each rewrite `findwall run` measures the job in its plain form; then both forms are timed in one process
without a profiler, in turns; at the end both are probed on the run's own shapes. A row has the plain step,
the step that was predicted (or the bound), the same after the probe, and the step as measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import in_turn

Step = Callable[[], object]
WARM, FEWEST, TURN_S = 12, 10, 0.15
LASTS_S = 45  # of a job alone: `findwall run --stop` ends it sooner
LANES = 2  # jobs that are started at once: one loads while the other has the device
PLAIN, CHEAPER = "plain", "cheaper"


def forms_of(fix: str, form: str) -> Callable[..., Any]:
    from findwall.fixes import fix_modules

    return getattr(fix_modules()[fix], form)


class Setting:
    """A device, and how large the jobs are."""

    def __init__(self, torch: Any, tiny: bool) -> None:
        self.torch, self.tiny = torch, tiny
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(0)

    def size(self, large: int, small: int = 4) -> int:
        return small if self.tiny else large

    def randn(self, *dims: int) -> Any:
        return self.torch.randn(*dims, device=self.device)

    def integers(self, below: int, *dims: int) -> Any:
        return self.torch.randint(0, below, dims, device=self.device)

    def trunk(self, width: int = 1024, depth: int = 4) -> Any:
        """A network beside what is rewritten, so that this is not all of the step."""
        nn = self.torch.nn
        width = self.size(width, 8)
        layers = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.GELU())]
        return nn.Sequential(*layers).to(self.device)

    def trained(self, model: Any, loss: Callable[[], Any], more: tuple[Any, ...] = ()) -> Step:
        optimizer = self.torch.optim.AdamW([*model.parameters(), *more], 1e-4)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            loss().backward()
            optimizer.step()

        return step


# -- the jobs ------------------------------------------------------------------------------------------


def pairwise_product(at: Setting, form: str) -> Step:
    """A kernel between inducing points and data."""
    call, torch = forms_of("pairwise-product", form), at.torch
    n, m, d = at.size(256, 4), at.size(32768, 16), at.size(32, 4)
    points, data, model = at.randn(n, d).requires_grad_(), at.randn(m, d), at.trunk()
    x = at.randn(at.size(2048), at.size(1024, 8))
    return at.trained(
        model,
        lambda: model(x).square().mean() + torch.exp(-0.02 * call(torch, points, data)).mean(),
        (points,),
    )


def product_order(at: Setting, form: str) -> Step:
    """Attention without a softmax: (q k^T) v or q (k^T v)."""
    call, torch = forms_of("product-order", form), at.torch
    batch, length, width = at.size(16, 2), at.size(4096, 8), at.size(64, 4)
    orders = "0,1:abc,acd->abd;3,2:abd,ade->abe", "1,2:acd,ade->ace;0,3:abc,ace->abe"
    q, k, v = (at.randn(batch, length, width).requires_grad_() for _ in range(3))
    model, x = at.trunk(), at.randn(at.size(2048), at.size(1024, 8))
    return at.trained(
        model,
        lambda: model(x).square().mean() + call(torch, [q, k.mT, v], *orders).square().mean() * 1e-6,
        (q, k, v),
    )


def topk(at: Setting, form: str) -> Step:
    call, torch = forms_of("topk", form), at.torch
    rows, length = at.size(16384, 8), at.size(4096, 16)
    scores, model, x = at.randn(rows, length), at.trunk(), at.randn(at.size(4096), at.size(1024, 8))

    def loss() -> Any:
        with torch.no_grad():
            values, _ = call(torch, scores, 8 if not at.tiny else 2, True)
        return model(x).square().mean() * values.mean()

    return at.trained(model, loss)


def index_select(at: Setting, form: str) -> Step:
    """Messages over edges, some nodes with many of them."""
    call, torch = forms_of("index-select", form), at.torch
    nodes, edges, width = at.size(50_000, 16), at.size(1_000_000, 32), at.size(64, 4)
    skewed = (at.torch.rand(edges, device=at.device) ** 3 * nodes).long()
    to = at.integers(nodes, edges)
    x, model = at.randn(nodes, width), torch.nn.Linear(width, width).to(at.device)

    def loss() -> Any:
        messages = call(torch, model(x), skewed)
        return torch.zeros_like(x).index_add(0, to, messages).square().mean()

    return at.trained(model, loss)


def lookup_not_onehot(at: Setting, form: str) -> Step:
    """A codebook: rows fetched, and of each code the sum."""
    call, torch = forms_of("lookup-not-onehot", form), at.torch
    count, codes, width = at.size(16384, 16), at.size(4096, 8), at.size(128, 4)
    table, codes_of = at.randn(codes, width), at.integers(codes, count)
    model = torch.nn.Linear(width, width).to(at.device)
    data = at.randn(count, width)

    def loss() -> Any:
        out = model(data)
        with torch.no_grad():
            rows, sums, counts = call(torch, codes_of, codes, table, out.detach())
            table.lerp_(sums / counts.clamp(min=1)[:, None], 0.01)
        return (out - rows).square().mean()

    return at.trained(model, loss)


def where_not_mask(at: Setting, form: str) -> Step:
    call, torch = forms_of("where-not-mask", form), at.torch
    rows, width = at.size(65536, 16), at.size(256, 4)
    data, mask = at.randn(rows, width), at.torch.rand(rows, width, device=at.device) < 0.9
    model = torch.nn.Linear(width, width).to(at.device)
    return at.trained(model, lambda: call(torch, (model(data) - data).square(), mask))


def scan_loop(at: Setting, form: str) -> Step:
    """Discounted sums over a rollout."""
    call, torch = forms_of("scan-loop", form), at.torch
    length, actors = at.size(256, 8), at.size(64, 4)
    rewards, decay = at.randn(length, actors), at.torch.rand(length, actors, device=at.device)
    model, x = at.trunk(512, 2), at.randn(length, at.size(512, 8))

    def loss() -> Any:
        with torch.no_grad():
            returns = call(torch, rewards, decay)
        return (model(x).mean(1, keepdim=True) - returns).square().mean()

    return at.trained(model, loss)


def foreach_checks(at: Setting, form: str) -> Step:
    torch = at.torch
    model, x = at.trunk(512, 24), at.randn(at.size(512), at.size(512, 8))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def by_hand() -> bool:
        total = 0.0
        for p in model.parameters():
            if torch.isnan(p.grad).any():
                return False
            total += p.grad.norm(2).item() ** 2
        scale = 1.0 / (total**0.5 + 1e-6)
        if scale < 1.0:
            for p in model.parameters():
                p.grad.mul_(scale)
        return True

    def listed() -> bool:
        return bool(torch.isfinite(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))

    check = by_hand if form == PLAIN else listed

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        (model(x).square().mean() * 1e4).backward()
        if check():
            optimizer.step()

    return step


def narrow_copies(at: Setting, form: str) -> Step:
    torch, nn = at.torch, at.torch.nn
    side = at.size(224, 32)
    frames = torch.randint(0, 256, (at.size(128, 2), 3, side, side), dtype=torch.uint8)
    floats = frames.float() / 255
    if form == CHEAPER and at.device == "cuda":
        frames = frames.pin_memory()
    model = nn.Sequential(
        nn.Conv2d(3, 32, 7, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    )
    model = model.to(at.device)

    def loss() -> Any:
        if form == PLAIN:
            return model(floats.to(at.device)).square().mean()
        return model(frames.to(at.device, non_blocking=True).float() / 255).square().mean()

    return at.trained(model, loss)


def make_on_device(at: Setting, form: str) -> Step:
    """Noise for a denoiser."""
    call, torch = forms_of("make-on-device", form), at.torch
    clean = at.randn(at.size(2048), at.size(1024, 8))
    model = at.trunk()

    def loss() -> Any:
        noise = call(torch, clean)
        return (model(clean + noise) - noise).square().mean()

    return at.trained(model, loss)


def cast_once(at: Setting, form: str) -> Step:
    """A language model's layers on a few tokens, under autocast or converted before."""
    torch = at.torch
    model = at.trunk(8192, 8).eval()
    x = at.randn(16, at.size(8192, 8))
    if form == CHEAPER:
        model, x = model.to(torch.bfloat16), x.to(torch.bfloat16)

    @torch.inference_mode()
    def step() -> Any:
        with torch.autocast(at.device, torch.bfloat16, enabled=form == PLAIN):
            return model(x)

    return step


def sparse_embedding(at: Setting, form: str) -> Step:
    torch, nn = at.torch, at.torch.nn
    rows, width = at.size(2_000_000, 64), at.size(64, 4)
    table = nn.Embedding(rows, width, sparse=form == CHEAPER).to(at.device)
    model, ids = nn.Linear(width, width).to(at.device), at.integers(rows, at.size(20_000, 8))
    kind = torch.optim.SparseAdam if form == CHEAPER else torch.optim.Adam
    optimizers = [kind(table.parameters(), 1e-3), torch.optim.Adam(model.parameters(), 1e-3)]

    def step() -> None:
        for one in optimizers:
            one.zero_grad(set_to_none=True)
        model(table(ids)).square().mean().backward()
        for one in optimizers:
            one.step()

    return step


def buffer_once(at: Setting, form: str) -> Step:
    """Decoding with a cache of keys and values that grows; sequences are of one length."""
    torch, nn = at.torch, at.torch.nn
    batch, heads, width, before = at.size(8, 1), 16, at.size(128, 4), at.size(3000, 8)
    longest, layers = before + 256, 4
    inner = heads * width
    kind = torch.bfloat16
    qkv = [nn.Linear(inner, 3 * inner).to(at.device, kind) for _ in range(layers)]
    made = longest if form == CHEAPER else before
    caches = [
        [torch.randn(batch, heads, made, width, device=at.device).to(kind) for _ in range(2)] for _ in qkv
    ]
    prompt = [list(cache) for cache in caches]
    state = {"n": before, "x": torch.randn(batch, 1, inner, device=at.device).to(kind)}

    @torch.inference_mode()
    def step() -> Any:
        if state["n"] == longest:
            state["n"], caches[:] = before, [list(cache) for cache in prompt]
        x, n = state["x"], state["n"]
        for layer, cache in zip(qkv, caches, strict=True):
            q, *new = layer(x).view(batch, 1, 3, heads, width).permute(2, 0, 3, 1, 4).unbind(0)
            if form == PLAIN:
                cache[:] = [torch.cat([one, part], dim=2) for one, part in zip(cache, new, strict=True)]
                k, v = cache
            else:
                for one, part in zip(cache, new, strict=True):
                    one[:, :, n : n + 1] = part
                k, v = (one[:, :, : n + 1] for one in cache)
            scores = torch.softmax(q @ k.mT / width**0.5, -1)
            x = x + (scores @ v).transpose(1, 2).reshape(batch, 1, inner)
        state["n"] = n + 1
        return x

    return step


def smooth_fft(at: Setting, form: str) -> Step:
    """Filters in the frequency domain, at a prime length or at the next smooth one."""
    torch = at.torch
    length = 521 if form == PLAIN else 540
    length = length if not at.tiny else 17
    images = at.randn(at.size(32, 2), at.size(32, 2), length, length)
    weight = at.randn(at.size(32, 2), length, length // 2 + 1).requires_grad_()
    model = torch.nn.Conv2d(images.shape[1], images.shape[1], 1).to(at.device)

    def loss() -> Any:
        found = torch.fft.irfft2(torch.fft.rfft2(model(images)) * weight, s=(length, length))
        return found[..., :521, :521].square().mean()

    return at.trained(model, loss, (weight,))


def group_experts(at: Setting, form: str) -> Step:
    call, torch = forms_of("group-experts", form), at.torch
    tokens, width, experts = at.size(8192, 16), at.size(512, 4), at.size(32, 3)
    expert, x = at.integers(experts, tokens), at.randn(tokens, width)
    weights = (at.randn(experts, width, width) / width**0.5).requires_grad_()
    model = torch.nn.Linear(width, width).to(at.device)
    return at.trained(model, lambda: call(torch, model(x), expert, weights).square().mean(), (weights,))


def loop_on_device(at: Setting, form: str) -> Step:
    """Boxes that overlap are left out, the best first: a loop that asks how many are left, or one matrix."""
    torch = at.torch
    count = at.size(256, 8)
    corner = torch.rand(count, 2, device=at.device) * 30
    boxes = torch.cat([corner, corner + 4], 1)
    model, x = at.trunk(512, 2), at.randn(64, at.size(512, 8))

    def overlap(one: Any, other: Any) -> Any:
        inside = torch.minimum(one[:, None, 2:], other[None, :, 2:]) - torch.maximum(
            one[:, None, :2], other[None, :, :2]
        )
        shared = inside.clamp(min=0).prod(-1)
        return shared / (32 - shared)

    def rounds() -> Any:
        left, kept = torch.arange(count, device=at.device), []
        while len(left):
            kept.append(left[0])
            rest = left[1:]
            left = rest[overlap(boxes[left[:1]], boxes[rest])[0] <= 0.3]
        return len(kept)

    def matrix() -> Any:
        hits = torch.triu(overlap(boxes, boxes) > 0.3, 1).float()
        keep = torch.ones(count, device=at.device)
        for _ in range(12):
            keep = (keep @ hits == 0).float()
        return keep.sum()

    pick = rounds if form == PLAIN else matrix

    def loss() -> Any:
        with torch.no_grad():
            pick()
        return model(x).square().mean()

    return at.trained(model, loss)


def averages_in_lists(at: Setting, form: str) -> Step:
    torch = at.torch
    model, x = at.trunk(512, 24), at.randn(at.size(512), at.size(512, 8))
    averages = [p.detach().clone() for p in model.parameters()]
    inner = at.trained(model, lambda: model(x).square().mean())

    def step() -> None:
        inner()
        with torch.no_grad():
            if form == CHEAPER:
                torch._foreach_lerp_(averages, list(model.parameters()), 0.001)
            else:
                for one, p in zip(averages, model.parameters(), strict=True):
                    one.mul_(0.999).add_(p * 0.001)

    return step


def vectorise_loop(at: Setting, form: str) -> Step:
    """A loss for each sample, one after the other."""
    torch = at.torch
    count, width = at.size(128, 8), at.size(512, 8)
    model, x, y = at.trunk(512, 2), at.randn(count, width), at.randn(count, width)

    def loss() -> Any:
        out = model(x)
        if form == CHEAPER:
            return (out - y).square().mean()
        return torch.stack([(out[i] - y[i]).square().mean() for i in range(count)]).mean()

    return at.trained(model, loss)


def sdpa(at: Setting, form: str) -> Step:
    torch = at.torch
    batch, heads, length, width = at.size(4, 1), at.size(16, 2), at.size(2048, 8), at.size(64, 4)
    model = torch.nn.Linear(heads * width, 3 * heads * width).to(at.device, torch.bfloat16)
    x = at.randn(batch, length, heads * width).to(torch.bfloat16)

    def loss() -> Any:
        q, k, v = model(x).view(batch, length, 3, heads, width).permute(2, 0, 3, 1, 4)
        if form == CHEAPER:
            found = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            found = torch.softmax(q @ k.mT / width**0.5, -1) @ v
        return found.float().square().mean()

    return at.trained(model, loss)


JOBS: dict[str, Callable[[Setting, str], Step]] = {
    name.replace("_", "-"): job
    for name, job in {
        "pairwise_product": pairwise_product,
        "foreach_checks": foreach_checks,
        "scan_loop": scan_loop,
        "narrow_copies": narrow_copies,
        "product_order": product_order,
        "make_on_device": make_on_device,
        "cast_once": cast_once,
        "where_not_mask": where_not_mask,
        "topk": topk,
        "index_select": index_select,
        "lookup_not_onehot": lookup_not_onehot,
        "sparse_embedding": sparse_embedding,
        "buffer_once": buffer_once,
        "smooth_fft": smooth_fft,
        "group_experts": group_experts,
        "loop_on_device": loop_on_device,
        "averages_in_lists": averages_in_lists,
        "vectorise_loop": vectorise_loop,
        "sdpa": sdpa,
    }.items()
}


# -- said, and got -------------------------------------------------------------------------------------


def run_alone(name: str, form: str, seconds: float, tiny: bool) -> None:
    import torch

    step, begun = JOBS[name](Setting(torch, tiny), form), time.monotonic()
    while time.monotonic() - begun < seconds:
        step()


def said_by_run(name: str, folder: Path, tiny: bool) -> dict[str, Any]:
    """What `findwall run` says of the plain job: its step, and of this fix the place and the step."""
    document = folder / f"{name}.json"
    if document.is_file():  # of a run before: only timed again
        return prediction(json.loads(document.read_bytes()), name)
    command = [sys.executable, "-m", "findwall", "run", "--stop", "--brief", "--until", "lines"]
    command += ["--json", str(document), "--out", str(folder / name), in_turn.__file__, __file__]
    command += ["--job", name, *(["--tiny"] if tiny else [])]
    begun = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    if not document.is_file():
        return {"failed": done.stderr[-400:], "took_s": time.perf_counter() - begun}
    found = json.loads(document.read_bytes())
    row = prediction(found, name)
    return {**row, "took_s": round(time.perf_counter() - begun, 1)}


def prediction(document: dict[str, Any], fix: str) -> dict[str, Any]:
    wall = document.get("wall") or {}
    given = [one for one in document.get("prescriptions") or [] if len(one["fixes"]) == 1]
    names = [one["fixes"][0] for one in given]
    mine = next((one for one in given if one["fixes"] == [fix]), None)
    return {
        "wall": f"{wall.get('wall')}/{wall.get('cause')}",
        "said_step_ms": (document.get("step") or {}).get("ms"),
        "place": names.index(fix) + 1 if fix in names else None,
        "first": names[0] if names else None,
        "predicted": mine["step_ms"] if mine is not None else None,
        "basis": mine["basis"] if mine is not None else None,
    }


def timed(name: str, _run: Path, tiny: bool) -> dict[str, Any]:
    """ms a step of both forms, in turns: the median of four turns each."""
    import torch

    at = Setting(torch, tiny)
    steps = {form: JOBS[name](at, form) for form in (PLAIN, CHEAPER)}
    found: dict[str, list[float]] = {form: [] for form in steps}
    for turn in range(5):
        for form, step in steps.items():
            for _ in range(WARM if turn == 0 else 3):
                step()
            _wait(torch)
            begun, done = time.perf_counter(), 0
            while done < FEWEST or time.perf_counter() - begun < TURN_S:
                step()
                done += 1
            _wait(torch)
            if turn:
                found[form].append((time.perf_counter() - begun) / done * 1e3)
    del steps
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return {form: round(statistics.median(ms), 4) for form, ms in found.items()}


def _wait(torch: Any) -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def probed(name: str, run: Path, _tiny: bool) -> dict[str, Any]:
    """The step as predicted once both forms were probed on the run's shapes; and what the probes took."""
    from msgspec.structs import replace

    from findwall.examine import facts_of
    from findwall.fixes import NoUse, Use, all_fixes, fix_modules
    from findwall.fixes.predict import predict
    from findwall.fixes.probed_uses import as_probed
    from findwall.probe.measuring import find_target, run_probes
    from findwall.probe.probed_rewrites import plan_rewrites
    from findwall.probe.probed_rewrites import timed as timing_of
    from findwall.readers import open_run

    opened = open_run([run])
    (facts, *_) = facts_of(opened, None)
    use = all_fixes()[name].advise(facts)
    if not isinstance(use, Use):
        return {"outcome": use.claim.id}
    if not use.rewrites:
        return {}
    target = find_target(facts.rank.device_kind, None)
    probes = run_probes(target, plan_rewrites(use.rewrites), forms=lambda fix: fix_modules()[fix])
    (facts, *_) = facts_of(replace(opened, probes=probes), None)
    told = as_probed(facts, use)
    timings = [timing_of(facts, rewrite) for rewrite in use.rewrites]
    ratios = [round(one.ratio, 3) for one in timings if one is not None]
    row = {"probes": len(use.rewrites), "ratios": ratios, "skipped": list(probes.skipped.values())}
    if isinstance(told, NoUse):
        return {**row, "outcome": "not faster"}
    found = predict(facts, {name: told})
    ends = [round(one / 1e6, 3) for one in (found.low, found.mid, found.high)] if found is not None else None
    return {**row, "probed": ends, "probed_basis": found.basis if found is not None else None}


def is_inside(row: dict[str, Any], ends: Any) -> bool | None:
    """Whether the measured share of the step lies in what was said of it; of a bound, whether it holds."""
    if not ends or not row.get("said_step_ms") or not row.get(CHEAPER):
        return None
    low, high = (ends[0], ends[2]) if isinstance(ends, list) else (ends.get("low"), ends.get("high"))
    share = row[CHEAPER] / row[PLAIN]
    above = low is None or low / row["said_step_ms"] * 0.97 <= share
    return above and (high is None or share <= high / row["said_step_ms"] * 1.03)


def told(ends: Any) -> str:
    if not ends:
        return "-"
    if isinstance(ends, dict):
        ends = [ends.get("low"), ends.get("mid"), ends.get("high")]
    low, mid, high = ends
    return f"{low:.2f}-{mid:.2f}-{high:.2f}" if mid else f"≥ {low:.2f}" if low else "-"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--out", type=Path)
    options.add_argument("--only", default=",".join(JOBS))
    options.add_argument("--deadline", type=float, default=280.0)
    options.add_argument("--tiny", action="store_true")
    options.add_argument("--job")
    options.add_argument("--form", default=PLAIN)
    options.add_argument("--seconds", type=float, default=LASTS_S)
    options.add_argument("--runs", type=Path, help="where the run folders are kept")
    given = options.parse_args()
    if given.job:
        run_alone(given.job, given.form, given.seconds, given.tiny)
        return
    names, begun, rows = given.only.split(","), time.perf_counter(), {}
    folder = given.runs or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)

    def left() -> float:
        return given.deadline - (time.perf_counter() - begun)

    print(f"{'rewrite':20} {'plain':>8} {'said of':>8} {'predicted':>22} {'probed':>22} {'got':>8}  inside")
    with ThreadPoolExecutor(LANES) as lanes:  # all before the first is timed: a host that loads is a slow one
        run = lanes.map(lambda name: said_by_run(name, folder, given.tiny) if left() > 0 else None, names)
        said = dict(zip(names, run, strict=True))
    for name in names:
        row = said[name] or {"late": True}
        for work in (timed, probed) if "late" not in row else ():
            try:
                row |= work(name, folder / name, given.tiny)
            except Exception as error:  # the others still count
                row.setdefault("errors", []).append(f"{type(error).__name__}: {error}"[:300])
        row["inside"] = is_inside(row, row.get("predicted"))
        row["probed_inside"] = is_inside(row, row.get("probed"))
        rows[name] = row
        print(
            f"{name:20} {row.get(PLAIN, 0):8.2f} {row.get('said_step_ms') or 0:8.2f} "
            f"{told(row.get('predicted')):>22} {told(row.get('probed')):>22} {row.get(CHEAPER, 0):8.2f}  "
            f"{row['inside']} {row['probed_inside']}  place {row.get('place')} first {row.get('first')} "
            f"wall {row.get('wall')} {row.get('ratios', '')} {row.get('outcome', '')} "
            f"{row.get('errors', '')} {str(row.get('failed', ''))[-200:]} {row.get('took_s', '')} s",
            flush=True,
        )
        if given.out is not None:
            given.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
