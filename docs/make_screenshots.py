"""The pictures of the page in docs/pictures: recorded jobs, drawn as `findwall report` draws them.

    python docs/make_screenshots.py

Needs Chromium (`make browser`). One picture a kind of job: what a person sees without scrolling.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from small_png import small  # noqa: E402

from browser import Browser, find_chromium  # noqa: E402
from findwall import api  # noqa: E402
from findwall.examine.series import gather  # noqa: E402
from findwall.report.page import to_page  # noqa: E402

FIXTURES = ROOT / "tests" / "fixtures"
PICTURES = ROOT / "docs" / "pictures"
LARGEST_BYTES = 150_000
JOBS = {
    "device-bound": "blind/lightning_pretrain",
    "starved": "jobs/slow_loader.json.gz",
    "launch-bound": "blind/store_forecasts",
    "kinds-of-steps": "blind/argon_dynamics",
    "no-verdict": "blind/story_writer",
}
# Parts that are worth a picture of their own: from which job, which section.
PARTS = {
    "budget": ("launch-bound", "budget"),
    "roofline": ("device-bound", "roofline"),
    "timeline": ("kinds-of-steps", "timeline"),
    "step-times": ("kinds-of-steps", "steps"),
}


def main() -> None:
    program = find_chromium()
    if program is None:
        sys.exit("No Chromium is installed: `make browser` installs one.")
    PICTURES.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, Browser(program) as browser:
        for name, path in JOBS.items():
            run, found = api.look(FIXTURES / path)
            page = Path(folder, f"{name}.html")
            page.write_text(to_page(found.diagnosis, gather(run, found.facts), "0.1"))
            browser.open(page, 1060, 760)
            browser.screenshot(PICTURES / f"{name}.png")
            for part, (job, section) in PARTS.items():
                if job == name:
                    browser.screenshot_of(PICTURES / f"{part}.png", f"#{section}")
        browser.open(Path(folder, "launch-bound.html"), 400, 860, dark=True)
        browser.screenshot(PICTURES / "phone-dark.png")
    for picture in sorted(PICTURES.glob("*.png")):
        picture.write_bytes(small(picture.read_bytes()))
        size = picture.stat().st_size
        print(f"{picture.relative_to(ROOT)}: {size / 1000:.0f} kB")
        if size > LARGEST_BYTES:
            sys.exit(f"{picture.name} is larger than {LARGEST_BYTES / 1000:.0f} kB")


if __name__ == "__main__":
    main()
