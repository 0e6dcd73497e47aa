"""The Diagnosis document as a page: every object of its JSON schema, and the fields of each."""

from __future__ import annotations

from typing import Any

OPENING = """# The Diagnosis document

What `--json FILE` writes, and what everything else that findwall shows is drawn from. The names below keep
their meaning under `"schema": "findwall/1"`; fields may be added. What is unknown is `null`, never 0. Times
in `ms` are of one step, and the rows of `budget` add up to `step.ms`. [schema.json](schema.json) is the same
for programs."""


def to_markdown(schema: dict[str, Any]) -> str:
    """The document itself first, then its parts by name."""
    parts: dict[str, Any] = schema["$defs"]
    whole = _name(schema)
    order = [whole, *sorted(name for name in parts if name != whole)]
    return "\n\n".join([OPENING, *(_part(name, parts[name]) for name in order)]) + "\n"


def _part(name: str, part: dict[str, Any]) -> str:
    rows = [f"| `{field}` | {_type(kind)} |" for field, kind in part.get("properties", {}).items()]
    said = f"\n\n{' '.join(part['description'].split())}" if part.get("description") else ""
    return "\n".join([f"## {name}{said}", "", "| field | |", "|---|---|", *rows])


def _type(kind: dict[str, Any]) -> str:
    if "$ref" in kind:
        return f"[{_name(kind)}](#{_name(kind).lower()})"
    if "anyOf" in kind:
        return " or ".join(map(_type, kind["anyOf"]))
    if "enum" in kind:
        return " or ".join("`null`" if value is None else f"`{value}`" for value in kind["enum"])
    given = kind.get("type", "anything")
    if given == "array":
        return f"list of {_type(kind.get('items', {}))}"
    if given == "object":
        values = kind.get("additionalProperties")
        return f"object of {_type(values)}" if isinstance(values, dict) and values else "object"
    return "`null`" if given == "null" else str(given)


def _name(reference: dict[str, Any]) -> str:
    return str(reference["$ref"]).rpartition("/")[2]
