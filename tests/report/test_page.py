"""The page as text: what is in it without a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import zlib
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace

from captures import FIXTURES
from findwall import cli
from findwall.examine.series import gather
from findwall.examine.series.one_step import MOST_EVENTS, OF_EVENT
from findwall.model.applied import Trial
from findwall.model.catalogue import WALL_OF
from findwall.model.claims import Range
from findwall.model.diagnosis import Diagnosis, from_json
from findwall.model.machine import Noted, Telemetry
from findwall.model.measurement import Measurement, StepColumns, Warmup
from findwall.model.series import Series
from findwall.report import fix_phrases, phrases
from findwall.report.markdown import to_markdown
from findwall.report.page import to_page
from findwall.report.page.markup import element, embedded, prose, text
from findwall.report.page.whole_page import PARTS
from findwall.report.terminal import to_text
from findwall.report.texts.top import busy_ms, figures
from recordings import look

Document = Callable[[str], Diagnosis]
DOCUMENTS = ["full", "no_verdict", "nothing_known", "hostile", "cpu_only"]
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "</SCRIPT >",
    "\"'><img src=x onerror=alert(1)>",
    "a\u2028b\u2029c",
    "\u202egpj.exe\u2066",
    "\x1b[31mred\x1b[0m",
    "]]>&lt;&#60;",
    "{{script}}",
)
USUAL_BYTES = 1_000_000


class Parsed(HTMLParser):
    """What a browser without scripts sees of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.blocks: dict[str, str] = {}
        self._block: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        self.tags.append((tag, own))
        if tag in ("script", "style"):
            self._block = own.get("id") or own.get("type") or tag
            self.blocks[self._block] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._block = None

    def handle_data(self, data: str) -> None:
        if self._block is not None:
            self.blocks[self._block] += data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


@pytest.fixture(scope="module")
def run_page() -> tuple[Diagnosis, Series, str]:
    """The page of a recorded run with kinds of steps."""
    run, found = look(FIXTURES / "blind" / "argon_dynamics")
    series = gather(run, found.facts)
    return found.diagnosis, series, to_page(found.diagnosis, series, "1.0")


def plain(page: str) -> str:
    """With the spaces that a browser breaks no line at as others."""
    return page.replace("\u00a0", " ")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_part_is_there_in_order(document: Document, name: str) -> None:
    parsed = Parsed(to_page(document(name)))
    sections = [own["id"] for tag, own in parsed.tags if tag == "section"]
    assert sections == [part for part, _ in PARTS]
    ids = [own["id"] for _, own in parsed.tags if own.get("id")]
    assert len(ids) == len(set(ids))
    assert "None" not in parsed.text.replace("None of", "")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_without_a_script_verdict_budget_and_fixes_are_there(document: Document, name: str) -> None:
    diagnosis = document(name)
    said = Parsed(to_page(diagnosis)).text
    title, sentence = phrases.verdict(diagnosis)
    assert title.rpartition(": ")[2] in said
    assert sentence.replace("`", "") in said
    for bar in phrases.bars(diagnosis, folded=False):
        assert f"{bar.cause}{bar.time}{bar.ends}{bar.share}{bar.recoverable}".replace(
            " ", ""
        ) in said.replace(" ", "")
    for item in diagnosis.prescriptions:
        assert fix_phrases.step_after(item.step_ms) in said


def numbers(said: str) -> set[str]:
    return set(re.findall(r"\d[\d,.]*(?:–\d[\d,.]*)? ?(?:ms|us|s|%|×|GiB|TFLOP/s)\b|\d[\d,.]* %", said))


@pytest.mark.parametrize("source", ["full", "cpu_only", "no_verdict", "run"])
def test_figures_are_the_terminals_and_the_markdowns(
    document: Document, run_page: tuple[Diagnosis, Series, str], source: str
) -> None:
    """Every figure with a unit that the terminal or the Markdown shows stands in the page, to the digit."""
    diagnosis, page = (run_page[0], run_page[2]) if source == "run" else (document(source), "")
    said = Parsed(page or to_page(diagnosis)).text
    written = re.sub(r"\s+", " ", re.sub(r"[\\*]|… \d+ more in --json", "", to_markdown(diagnosis)))
    shown = re.sub(r"[\s┃]+", " ", to_text(diagnosis, width=400))
    in_columns = _folded(diagnosis) | {
        figure for bar in phrases.bars(diagnosis, folded=False) for figure in (bar.time, bar.recoverable)
    }
    missing = {one for one in numbers(written) | numbers(shown) if one not in said}
    assert {one for one in missing if one.split(" ")[0] not in in_columns} == set()


def _folded(diagnosis: Diagnosis) -> set[str]:
    """The figures of the row that the terminal folds small causes into."""
    rows = [bar for bar in phrases.bars(diagnosis) if bar.cause.startswith("other (")]
    return {figure for bar in rows for figure in (bar.time, bar.share.split(" ")[0], bar.recoverable)}


def test_kernels_have_the_figures_of_the_terminals_table(run_page: tuple[Diagnosis, Series, str]) -> None:
    diagnosis, _, page = run_page
    busy = busy_ms(diagnosis)
    for row in diagnosis.kernels:
        told = figures(row, busy)
        cells = [told.ms, told.share, told.calls, told.floor]
        assert all(re.search(rf">{re.escape(text(cell))}</td>", plain(page)) for cell in cells)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_nothing_runs_but_its_own_script_and_nothing_is_fetched(document: Document, name: str) -> None:
    page = to_page(document(name))
    parsed = Parsed(page)
    policy = next(own["content"] for tag, own in parsed.tags if own.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy and "http" not in policy
    for kind, block in (("script", "script"), ("style", "style")):
        digest = base64.b64encode(hashlib.sha256(parsed.blocks[block].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    for _tag, own in parsed.tags:
        assert not {"style", "src", "srcset", "action"} & set(own)
        assert not [name for name in own if name.startswith("on")]
        assert own.get("href", "#") is None or str(own.get("href", "#")).startswith("#")


def test_hostile_names_stay_text(document: Document) -> None:
    """Wherever a name can come from: it adds no tag, and is the text it was, less what cannot be shown."""
    harmless = Parsed(to_page(named(document("full"), "plain")))
    for name in HOSTILE:
        wild = named(document("full"), name)
        page = to_page(wild)
        parsed = Parsed(page)
        assert [tag for tag, _ in parsed.tags] == [tag for tag, _ in harmless.tags]
        assert attributes(parsed) - {"title"} <= attributes(harmless)
        assert from_json(parsed.blocks["diagnosis"].encode()) == wild
        assert json.loads(parsed.blocks["markdown"]) == to_markdown(wild)
        assert not re.search("[\u202a-\u202e\u2066-\u2069\u2028\u2029\x1b]", parsed.text)
        assert phrases.verdict(wild)[1] in parsed.text


def attributes(parsed: Parsed) -> set[str]:
    return {name for _, own in parsed.tags for name in own}


def named(diagnosis: Diagnosis, name: str) -> Diagnosis:
    """The document with this name wherever one can come from outside."""
    return replace(
        diagnosis,
        source=replace(diagnosis.source, paths=[name for _ in diagnosis.source.paths]),
        machine=replace(diagnosis.machine, device=name),
        wall=replace(diagnosis.wall, sentence=name),
        budget=[
            replace(row, evidence=[replace(one, text=name, line=name, ms=None) for one in row.evidence])
            for row in diagnosis.budget
        ],
        kernels=[replace(one, name=name + name, op=name) for one in diagnosis.kernels],
        prescriptions=[replace(one, how=name) for one in diagnosis.prescriptions],
        not_worth_it=[replace(one, why=name) for one in diagnosis.not_worth_it],
        questions=[replace(one, sentence=name) for one in diagnosis.questions],
        notes=[name for _ in diagnosis.notes],
    )


def test_a_hostile_document_is_drawn_too(document: Document) -> None:
    page = to_page(document("hostile"))
    assert [tag for tag, _ in Parsed(page).tags if tag in ("img", "iframe", "object", "a b")] == []
    assert page.count("<script") == 3  # the document, the Markdown, its own


@pytest.mark.parametrize("name", HOSTILE)
def test_markup_is_made_in_one_place(name: str) -> None:
    assert "<" not in text(name) and '"' not in text(name)
    block = embedded("x", {"name": name})
    assert block.count("<") == 2 and json.loads(Parsed(block).blocks["x"])["name"] == name
    assert Parsed(element("p", name, title=name)).tags[0][0] == "p"


def test_prose_has_code_between_backticks_only() -> None:
    assert prose("Use `a < b`: now") == "Use <code>a &lt; b</code>: now"
    assert prose("a ` alone") == "a ` alone"


def test_the_same_document_gives_the_same_bytes(run_page: tuple[Diagnosis, Series, str]) -> None:
    diagnosis, series, page = run_page
    assert to_page(diagnosis, series, "1.0") == page


def test_a_usual_page_is_small(run_page: tuple[Diagnosis, Series, str]) -> None:
    assert len(run_page[2].encode()) < USUAL_BYTES


def test_the_copied_markdown_is_the_markdown(document: Document) -> None:
    diagnosis = document("full")
    assert json.loads(Parsed(to_page(diagnosis)).blocks["markdown"]) == to_markdown(diagnosis)


def test_the_timeline_is_packed_and_comes_out_whole(run_page: tuple[Diagnosis, Series, str]) -> None:
    _, series, page = run_page
    step = series.timeline
    assert step is not None
    data = json.loads(Parsed(page).blocks["step-events"])
    raw = zlib.decompress(base64.b64decode(data["columns"]))
    assert raw == step.start + step.length + step.name + step.cause
    assert data["count"] == step.events == sum(count for _, _, count in data["lanes"])
    assert data["step"] == [step.step_from, step.step_to]
    assert [cause for cause, _ in data["causes"]] == list(OF_EVENT)
    assert dict(data["causes"])["host-work"] == WALL_OF["host-work"]


def test_the_step_that_is_drawn_is_of_the_kind_that_takes_the_time(
    run_page: tuple[Diagnosis, Series, str],
) -> None:
    """One step in ten takes most of the time: it is drawn, its long gap blamed on the verdict's cause."""
    diagnosis, series, _ = run_page
    step = series.timeline
    assert step is not None and step.kind == "slow"
    lengths = struct.unpack(f"<{step.events}I", step.length)
    first = step.lanes[0]
    assert step.tracks[first.track].side == "idle"
    longest = max(range(first.count), key=lambda at: lengths[at])
    assert step.causes[step.cause[longest]] == diagnosis.wall.cause == "host-work"


@pytest.mark.parametrize(
    "path",
    [
        "jobs/slow_loader.json.gz",
        "jobs/json_logging.json.gz",
        "jobs/empty_cache.json.gz",
        "jobs/plain_adamw.json.gz",
        "blind/store_forecasts",
        "blind/page_layout_server",
    ],
)
def test_the_gaps_that_are_drawn_agree_with_the_budget(path: str) -> None:
    """They do not overlap, leave room for the work, and the longest cause among them is the budget's."""
    run, found = look(FIXTURES / path)
    step = gather(run, found.facts).timeline
    assert step is not None
    first, now, drawn = step.lanes[0], 0, dict.fromkeys(step.causes, 0)
    assert step.tracks[first.track].side == "idle"
    starts = struct.unpack(f"<{step.events}I", step.start)
    lengths = struct.unpack(f"<{step.events}I", step.length)
    end = step.step_from
    for row in range(first.count):
        now += starts[row]
        assert now >= end
        end = now + lengths[row]
        drawn[step.causes[step.cause[row]]] += lengths[row]
    assert end <= step.step_to
    del drawn["profiler"]
    waits = [row for row in found.diagnosis.budget if row.wall in ("overhead", "data")]
    longest = max(waits, key=lambda row: row.ms)
    if longest.ms > 0.2 * (found.diagnosis.step.ms or 0.0):
        assert max(drawn, key=lambda cause: drawn[cause]) == longest.cause
    else:
        assert sum(drawn.values()) < 0.3 * (step.step_to - step.step_from)


def test_lanes_hold_events_in_order_inside_the_window(run_page: tuple[Diagnosis, Series, str]) -> None:
    step = run_page[1].timeline
    assert step is not None and step.left_out == 0 and step.events <= MOST_EVENTS
    starts = struct.unpack(f"<{step.events}I", step.start)
    lengths = struct.unpack(f"<{step.events}I", step.length)
    at = 0
    for lane in step.lanes:
        now = 0
        for row in range(at, at + lane.count):
            now += starts[row]
            assert 0 <= now <= now + lengths[row] <= step.span
        at += lane.count


def test_too_many_events_lose_the_shortest_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    from findwall.examine.series import one_step

    run, found = look(FIXTURES / "blind" / "argon_dynamics")
    whole = gather(run, found.facts).timeline
    assert whole is not None
    monkeypatch.setattr(one_step, "MOST_EVENTS", whole.events - 100)
    cut = gather(run, found.facts).timeline
    assert cut is not None
    assert cut.left_out == 100 and cut.events == whole.events - 100

    def of_device(step: object) -> int:
        return sum(lane.count for lane in step.lanes if step.tracks[lane.track].side != "host")  # type: ignore[attr-defined]

    assert of_device(cut) == of_device(whole)
    page = to_page(found.diagnosis, Series(timeline=cut))
    assert "100 short events of the host are left out" in page


def test_timed_steps_are_drawn_with_their_kinds(run_page: tuple[Diagnosis, Series, str]) -> None:
    _, series, page = run_page
    steps = series.steps
    assert steps is not None
    assert page.count('<g class="step ') == len(steps.timed.ms)
    assert page.count('class="step other') == sum(kind != "usual" for kind in steps.timed.kinds) > 0
    assert "17 before them were warm-up and are left out" in page
    assert "4 traced from step 82 on" in page
    assert "findwall run argon_dynamics.py" in Parsed(page).text


def test_a_trace_says_why_there_are_no_timed_steps() -> None:
    run, found = look(FIXTURES / "jobs" / "slow_loader.json.gz")
    page = Parsed(to_page(found.diagnosis, gather(run, found.facts)))
    assert "findwall run times the steps without the profiler" in page.text
    assert "loader-starved" in page.text


def test_samples_stand_at_the_steps_they_were_taken_in(document: Document) -> None:
    from findwall.examine.series.gather import step_series

    noted = Noted([0.0, 0.25, 0.9], {"sm_clock_mhz": [1980.0, None, 1200.0], "held_down": [0.0, 0.0, 1.0]})
    count = 10
    columns = StepColumns(
        host_ns=[100_000_000] * count,
        device_ns=[None] * count,
        loader_ns=[0] * count,
        gc_ns=[0] * count,
        hook_ns=[0] * count,
        batches=[0] * count,
        compiles=[0] * count,
        evaluated=[False] * count,
    )
    measured = Measurement(
        warmup=Warmup(steps=5), first_timed=5, steps=columns, telemetry=Telemetry(noted=noted)
    )
    series = step_series(measured)
    assert series is not None and series.samples is not None
    assert series.samples.step == pytest.approx([5.0, 7.5, 14.0])
    page = plain(to_page(document("full"), Series(steps=series)))
    assert "SM clock 1200–1980 MHz" in page
    assert "held down in 33 % of the samples" in page
    assert step_series(Measurement()) is None


def test_trials_stand_on_the_road(document: Document) -> None:
    diagnosis = document("full")
    tried = Trial(
        fix="pad-shapes",
        predicted=Range(mid=30.0),
        measured=Range(29.0, 31.0, 33.0),
        verdict="faster",
        speedup=Range(1.25, 1.33, 1.42),
        kept=True,
    )
    said = Parsed(to_page(replace(diagnosis, trials=[tried]))).text
    assert "31.0 ms (29.0–33.0 ms)" in said
    assert "faster, kept" in said


def test_report_writes_into_the_run_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import shutil

    folder = tmp_path / "findwall-runs" / "late-1"
    shutil.copytree(FIXTURES / "runs" / "late_rank", folder)
    assert cli._run(["report", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"
    assert "straggler" in (folder / "report.html").read_text()


def test_report_takes_the_newest_run_and_a_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    shutil.copytree(FIXTURES / "runs" / "late_rank", tmp_path / "findwall-runs" / "late-1")
    monkeypatch.chdir(tmp_path)
    assert cli._run(["report", "-o", "a.html"]) == 0
    assert (tmp_path / "a.html").is_file()
    document = FIXTURES / "documents" / "full.json"
    assert cli._run(["report", str(document), "-o", "b.html"]) == 0
    assert unescape((tmp_path / "b.html").read_text()).count("misaligned-shapes") > 2
    capsys.readouterr()
    assert cli._run(["report", str(document), "--step-ms", "3"]) == 2
    assert "its figures are settled" in capsys.readouterr().err


def test_read_draws_the_page_after_the_view(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, target = FIXTURES / "jobs" / "slow_loader.json.gz", tmp_path / "page.html"
    assert cli._run(["read", str(trace), "--brief", "--page", str(target)]) == 0
    assert "THE WALL: data / loader-starved" in capsys.readouterr().out
    assert target.read_text().startswith("<!DOCTYPE html>")


def test_a_page_that_fails_does_not_cost_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from findwall.report import page

    def broken(*_: object) -> str:
        raise ValueError("no ink")

    monkeypatch.setattr(page, "to_page", broken)
    trace = FIXTURES / "jobs" / "slow_loader.json.gz"
    assert cli._run(["read", str(trace), "--brief", "--page", str(tmp_path / "page.html")]) == 0
    out, err = capsys.readouterr()
    assert "THE WALL" in out
    assert "the page was not drawn (ValueError: no ink)" in err
