"""The page in a real Chromium. `make browser` installs one; without it these tests skip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import Browser, axe_source, find_chromium
from captures import FIXTURES
from findwall import api
from findwall.examine.compared import Taken, compare_sides
from findwall.examine.series import gather
from findwall.model.diagnosis import from_json
from findwall.report.markdown import to_markdown
from findwall.report.page import compared_page, to_page
from findwall.report.page.comparison_page import PARTS as COMPARED_PARTS
from findwall.report.page.whole_page import PARTS

PROGRAM = find_chromium()
pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed: `make browser` installs one"),
    pytest.mark.xdist_group("browser"),
]
JOBS = {
    "device-bound": "blind/lightning_pretrain",
    "starved": "jobs/slow_loader.json.gz",
    "kinds": "blind/argon_dynamics",
    "no-verdict": "blind/story_writer",
}
DOCUMENTS = ("hostile", "nothing_known", "cpu_only")
OPENS_WITHIN_MS = 500.0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert PROGRAM is not None
    with Browser(PROGRAM) as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, path in JOBS.items():
        run, examined = api.look(FIXTURES / path)
        found[name] = folder / f"{name}.html"
        found[name].write_text(to_page(examined.diagnosis, gather(run, examined.facts), "1.0"))
    for name in DOCUMENTS:
        document = from_json((FIXTURES / "documents" / f"{name}.json").read_bytes())
        found[name] = folder / f"{name}.html"
        found[name].write_text(to_page(document))
    return found


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("name", [*JOBS, *DOCUMENTS])
def test_no_error_no_request_and_all_of_it_is_seen(
    browser: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    browser.open(pages[name], width, dark=width == 400)
    assert browser.errors() == []
    assert browser.requests() == [pages[name].resolve().as_uri()]
    assert browser.run("document.documentElement.scrollWidth") <= width
    seen = browser.run(
        "[...document.querySelectorAll('main > section')].filter(one => {"
        " const box = one.getBoundingClientRect(); return box.width > 300 && box.height > 40; })"
        ".map(one => one.id)"
    )
    assert seen == [part for part, _ in PARTS]


@pytest.mark.parametrize("name", [*JOBS, "hostile"])
def test_it_can_be_read_by_everyone(browser: Browser, pages: dict[str, Path], name: str) -> None:
    axe = axe_source()
    if axe is None:
        pytest.skip("axe-core is not installed: `make browser` fetches it")
    for width, dark in ((1400, False), (400, True)):
        browser.open(pages[name], width, dark=dark)
        browser.run(f"{axe};1")
        found = browser.run(
            "axe.run().then(all => all.violations.map(one => [one.impact, one.id, one.nodes[0].html]))"
        )
        assert [one for one in found if one[0] in ("serious", "critical")] == []


@pytest.fixture(scope="module")
def comparisons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("comparisons")
    jobs = [api.look(FIXTURES / JOBS[name])[1].diagnosis for name in ("device-bound", "starved")]
    hostile = from_json((FIXTURES / "documents" / "hostile.json").read_bytes())
    found = {"jobs": folder / "jobs.html", "hostile": folder / "hostile.html"}
    found["jobs"].write_text(compared_page(compare_sides([Taken(jobs[0])], [Taken(jobs[1])]), "1.0"))
    found["hostile"].write_text(compared_page(compare_sides([Taken(hostile)], [Taken(jobs[1])])))
    return found


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("name", ["jobs", "hostile"])
def test_the_page_of_a_comparison(
    browser: Browser, comparisons: dict[str, Path], name: str, width: int
) -> None:
    browser.open(comparisons[name], width, dark=width == 400)
    assert browser.errors() == []
    assert browser.requests() == [comparisons[name].resolve().as_uri()]
    assert browser.run("document.documentElement.scrollWidth") <= width
    shown = browser.run("[...document.querySelectorAll('main > section')].map(one => one.id)")
    assert shown == [part for part, _ in COMPARED_PARTS]
    if (axe := axe_source()) is None:
        return
    browser.run(f"{axe};1")
    bad = browser.run("axe.run().then(all => all.violations.map(one => [one.impact, one.id]))")
    assert [one for one in bad if one[0] in ("serious", "critical")] == []


def test_a_usual_page_opens_at_once(browser: Browser, pages: dict[str, Path]) -> None:
    took = []
    for _ in range(3):
        browser.open(pages["device-bound"])
        took.append(browser.run("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert min(took) < OPENS_WITHIN_MS


def test_hostile_names_ran_nothing(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hostile"])
    assert browser.run("document.querySelectorAll('img, iframe, object, embed, link').length") == 0
    assert browser.run("document.scripts.length") == 3
    assert browser.errors() == []


def test_without_scripts_the_answer_is_there(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["starved"], script=False)
    root = browser.call("DOM.getDocument", {"depth": -1})["root"]["nodeId"]
    for wanted in ("#verdict h1", "#verdict .first-fix strong", "#budget .stack", "#fixes tbody tr"):
        found = browser.call("DOM.querySelector", {"nodeId": root, "selector": wanted})["nodeId"]
        assert found
        assert browser.call("DOM.getBoxModel", {"nodeId": found})["model"]["height"] > 0
    browser.call("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_keyboard_reaches_everything(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["kinds"])
    wanted = browser.run(
        "document.querySelectorAll('summary, button, input, canvas, a, [tabindex=\"0\"]').length"
    )
    browser.run(
        "window.reached = new Set(); document.addEventListener('focusin', one => reached.add(one.target)); 1"
    )
    for _ in range(wanted + 2):
        browser.press("Tab")
    assert browser.run("reached.size") >= wanted


def test_dots_are_gone_through_with_arrows(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["kinds"])
    browser.run("document.querySelector('.dot').focus(); 1")
    first = browser.run("document.getElementById('tip').textContent")
    browser.press("ArrowRight")
    second = browser.run("document.getElementById('tip').textContent")
    assert first and second and first != second
    assert "FLOPs per byte" in second
    assert browser.run("document.querySelectorAll('.dot[tabindex=\"0\"]').length") == 1


def test_a_heading_sorts_the_kernels(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["kinds"])
    cells = "[...document.querySelectorAll('.kernels tbody tr')].map(one => one.cells[5].dataset.value)"
    browser.run("document.querySelectorAll('.kernels th button')[5].click(); 1")
    found = [float(one) for one in browser.run(cells) if one]
    assert found == sorted(found, reverse=True)
    browser.run("document.querySelectorAll('.kernels th button')[5].click(); 1")
    found = [float(one) for one in browser.run(cells) if one]
    assert found == sorted(found)


def test_the_timeline_moves_zooms_and_finds(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["kinds"])
    picture = (
        "document.getElementById('events').toDataURL().length + document.getElementById('events').toDataURL()"
    )
    seen = [browser.run(picture)]
    browser.run("document.getElementById('events').focus(); 1")
    for key in ("+", "ArrowRight", "0"):
        browser.press(key)
        browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        seen.append(browser.run(picture))
    assert seen[0] != seen[1] != seen[2] != seen[0]
    assert seen[3] == seen[0]
    browser.press("ArrowDown")
    browser.press("n")
    assert "into the step" in browser.run("document.getElementById('at-cursor').textContent")
    browser.run("document.getElementById('find').focus(); 1")
    for sign in "addmm":
        browser.press(sign)
    assert " found, " in browser.run("document.getElementById('found').textContent")
    browser.press("Enter")
    assert "addmm" in browser.run("document.getElementById('at-cursor').textContent").lower()


def test_the_button_copies_the_markdown(browser: Browser, pages: dict[str, Path]) -> None:
    _, examined = api.look(FIXTURES / JOBS["starved"])
    browser.open(pages["starved"])
    browser.run(
        "window.copied = null;"
        "const told = {writeText: async text => { copied = text; }};"
        "Object.defineProperty(navigator, 'clipboard', {value: told}); 1"
    )
    browser.run("document.getElementById('copy').click(); 1")
    assert browser.run("copied") == to_markdown(examined.diagnosis)


def test_times_are_written_as_everywhere(browser: Browser, pages: dict[str, Path]) -> None:
    """What the script writes under the cursor is what Python writes."""
    from findwall.units import format_ms

    source = (Path(to_page.__code__.co_filename).parent / "page.js").read_text()
    body = source[source.index("function formatMs") : source.index("/* ---- the timeline")]
    values = [0.0, 0.0004, 0.0123, 0.7, 1.2345, 9.994, 12.34, 99.96, 123.4, 4567.8, 12345.6, 123456.7]
    browser.open(pages["starved"])
    assert browser.run(f"(() => {{ {body} return {values}.map(formatMs); }})()") == [
        format_ms(one) for one in values
    ]
