from __future__ import annotations

import json

from findwall.model.diagnosis import Diagnosis, json_schema
from findwall.report.documented import to_markdown


def test_every_object_has_its_fields_and_every_link_its_object() -> None:
    schema = json.loads(json_schema())
    text = to_markdown(schema)
    for name, part in schema["$defs"].items():
        section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
        assert all(f"| `{field}` |" in section for field in part["properties"]), name
        assert f"(#{name.lower()})" in text or name == Diagnosis.__name__


def test_types_are_told_in_words() -> None:
    text = to_markdown(json.loads(json_schema()))
    assert "| `budget` | list of [BudgetRow](#budgetrow) |" in text
    assert "| `answer` | `no` or `unknown` or `yes` |" in text
    assert "| `mfu` | number or `null` |" in text
