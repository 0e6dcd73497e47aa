"""Options as the objects of parsers declare them, in columns of plain values."""

from __future__ import annotations

import argparse
import enum
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from findwall.agent.secrets import mask_arguments, mask_text
from findwall.model.switches.program_options import Form, Option

# What is kept of each, in characters and in choices. Chosen by hand.
LONGEST_HELP, LONGEST_VALUE, MOST_CHOICES = 400, 80, 64
_FORMS: dict[str, Form] = {
    "_StoreTrueAction": "on",
    "_StoreFalseAction": "off",
    "BooleanOptionalAction": "either",
    "ActionYesNo": "either",  # jsonargparse's
}
_CLICKS = {"integer": "int", "text": "str"}  # names of types
_ENDS = (argparse.PARSER, argparse.REMAINDER)  # nothing behind them is read by this parser


def of_argparse(parser: Any, namespace: Any) -> list[Option]:
    """None where another parser, or none, reads what is typed at the end of the line."""
    actions = list(parser._actions)
    if any(one.nargs in _ENDS for one in actions):
        return []
    found = []
    for one in actions:
        if one.option_strings and not isinstance(one, argparse._HelpAction | argparse._VersionAction):
            with suppress(Exception):  # fail open: one that cannot be told is left out
                found.append(_of_action(one, namespace))
    return found


def _of_action(action: Any, namespace: Any) -> Option:
    form = _FORMS.get(type(action).__name__, "value")
    if form == "value":
        form = _form_of(action)
    kind = getattr(action, "_typehint", None) or action.type
    return Option(
        flags=tuple(map(str, action.option_strings)),
        dest=str(action.dest),
        form=form,
        type="" if kind is None else str(getattr(kind, "__name__", kind))[:LONGEST_HELP],
        choices=_choices(action.choices),
        default=plain(action.default, str(action.dest)),
        value=plain(_value(namespace, str(action.dest), action.default), str(action.dest)),
        help=_help(action.help),
    )


def _form_of(action: Any) -> Form:
    if action.nargs == argparse.OPTIONAL:
        return "optional" if action.const else "value"
    return "value" if action.nargs in (None, 1) else "other"


def _value(namespace: Any, dest: str, default: Any) -> Any:
    if hasattr(namespace, dest):
        return getattr(namespace, dest)
    with suppress(Exception):  # a namespace of namespaces has its values by their full name
        return namespace[dest]
    return default


def of_click(command: Any, context: Any) -> list[Option]:
    """None of a group: what is typed at the end of the line is for the command in it."""
    if hasattr(command, "commands") or any(getattr(one, "nargs", 1) == -1 for one in command.params):
        return []
    return [_of_click_option(one, context) for one in command.params if hasattr(one, "is_flag")]


def _of_click_option(one: Any, context: Any) -> Option:
    is_single = one.nargs == 1 and not one.multiple and not getattr(one, "count", False)
    form: Form = "value" if is_single else "other"
    flags = tuple(map(str, one.opts))
    if one.is_flag:
        form = "either" if one.secondary_opts else "on"
        is_usual = all(f"--no-{flag[2:]}" in one.secondary_opts for flag in flags if flag.startswith("--"))
        form = form if is_usual or form == "on" else "other"
    return Option(
        flags=flags,
        dest=str(one.name),
        form=form,
        type=_CLICKS.get(kind := str(getattr(one.type, "name", "")), kind),
        choices=_choices(getattr(one.type, "choices", None)),
        default=plain(one.default, one.name),
        value=plain(context.params.get(one.name), one.name),
        help=_help(one.help),
    )


def of_absl(values: Any) -> list[Option]:
    found = []
    for name in values:
        with suppress(Exception):  # fail open: one that cannot be told is left out
            flag = values[name]
            kind = str(flag.flag_type())
            found.append(
                Option(
                    flags=(f"--{name}",),
                    dest=str(name),
                    form="on" if kind == "bool" else "value",
                    type=kind,
                    choices=_choices(getattr(flag.parser, "enum_values", None)),
                    default=plain(flag.default, name),
                    value=plain(flag.value, name),
                    help=_help(flag.help),
                )
            )
    return found


def plain(value: Any, name: str = "") -> str | None:
    """As text, where it is a plain value: no code of the job's is called for it. `name`: of its option, which
    may say that it is a secret."""
    if isinstance(value, enum.Enum):
        value = value.value
    if type(value) not in (str, int, float, bool):
        return None
    text = str(value)[:LONGEST_VALUE]
    return mask_arguments([f"--{name}", text])[-1] if name else mask_text(text)


def _choices(given: Any) -> tuple[str, ...]:
    if isinstance(given, Mapping):
        given = list(given)
    if not isinstance(given, Iterable) or not isinstance(given, list | tuple | set | frozenset | range):
        return ()
    told = (plain(one) for one in list(given)[:MOST_CHOICES])
    return tuple(one for one in told if one is not None)


def _help(text: Any) -> str:
    return mask_text(text[:LONGEST_HELP]) if isinstance(text, str) and text != argparse.SUPPRESS else ""
