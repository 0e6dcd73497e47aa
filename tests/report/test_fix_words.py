"""Whatever a fix says has words, and no words stand there that nothing says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import findwall.fixes
from findwall.report.words import vocabulary

SOURCE = Path(findwall.fixes.__file__).parents[1]
IDS = re.compile(r'"([a-z0-9-]+/[a-z0-9-]+)"')
MADE_UP = re.compile(r'f"([a-z0-9-]+/[a-z-]*)\{')  # its end depends on the job
CURVES = {"fused/chain", "optimizer/fused"}  # no claims
APPLIED = re.compile(
    r"^def (?:apply|patch|shows|stand_in)\b", re.MULTILINE
)  # what is done to a live job says so


def sources() -> dict[str, str]:
    """What comes before a live job is changed, without the page."""
    found = {}
    for path in sorted((SOURCE / "fixes").rglob("*.py")):
        code = re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL)
        if path.parent.name == "fixes" or "\nFIX = " in code or path.stem.endswith("refusals"):
            found[path.name] = APPLIED.split(code)[0]
    return found


def test_every_claim_of_a_fix_has_words() -> None:
    known = vocabulary()
    for name, code in sources().items():
        missing = [one for one in IDS.findall(code) if one not in known and one not in CURVES]
        assert not missing, f"{name}: {missing}"
        for start in set(MADE_UP.findall(code)) - {"attention/", "conv/"}:  # curves
            assert any(one.startswith(start) for one in known), f"{name}: {start}"


def test_no_words_are_left_of_what_nothing_says() -> None:
    code = "".join(path.read_text() for path in (SOURCE / "fixes").rglob("*.py"))
    for room in ("facts", "examine"):
        code += "".join(path.read_text() for path in (SOURCE / room).rglob("*.py"))
    said, starts = set(IDS.findall(code)), tuple(MADE_UP.findall(code))
    fixes = {path.stem.replace("_", "-") for path in (SOURCE / "fixes").rglob("*.py")}
    mine = [one for one in vocabulary() if one.split("/")[0] in fixes | {"refused", "prescribed", "what-if"}]
    inside = {f"remove-sync/{way}" for way in re.findall(r': "([a-z-]+)",', code)}
    assert [one for one in mine if one not in said | inside and not one.startswith(starts)] == []


def test_a_fix_holds_no_sentence() -> None:
    left_alone = (
        "stack_patch.py",
        "switch_meanings.py",
        "what_if.py",
    )  # an error about what a person typed, a reason why there is no edit, patterns of what scripts say
    for name, code in sources().items():
        texts = [one.value for one in ast.walk(ast.parse(code)) if isinstance(one, ast.Constant)]
        sentences = [text for text in texts if isinstance(text, str) and text.count(" ") > 2]
        assert name in left_alone or not sentences, f"{name}: {sentences}"
