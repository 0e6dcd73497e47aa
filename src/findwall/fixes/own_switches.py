"""Which of a program's own options make what a fix of ours does, and what is typed for it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from findwall.fixes.loader.loader_workers import AHEAD
from findwall.fixes.switch_meanings import (
    AHEAD_OF_STEP,
    BATCHES,
    LEARNS,
    MEANINGS,
    OFF,
    ON,
    WORK,
    Meaning,
)
from findwall.model.switches.program_options import Option
from findwall.model.switches.typed_switches import Switch

_BOOLEAN = re.compile(r"bool|strtobool|true_?false|boolean")
_FILLERS = frozenset(
    ("a", "the", "of", "to", "for", "use", "whether", "or", "not", "enable", "default", "number", "num")
)
_WORD = re.compile(r"[a-z0-9]+(?:[-_.][a-z0-9]+)*")


def own_switches(
    options: Sequence[Option], typed: Sequence[str] = (), workers: int | None = None
) -> dict[str, Switch]:
    """By the fix that each makes; none that has the wanted value already. `typed`: the job's arguments;
    `workers`: as many as a loader should have."""
    if "--" in typed:  # what follows it are no options
        return {}
    found: dict[str, Switch] = {}
    program = _Program(options, typed, workers)
    for meaning in MEANINGS:
        # A program that has it already, by any of its options, has nothing to switch.
        words = program.words_for(meaning) if meaning.fix not in program.has else None
        if words is not None and meaning.fix not in found:
            found[meaning.fix] = words
    return {fix: switch for fix, switch in found.items() if fix not in program.has}


class _Program:
    """All options of a program, and what it was given."""

    def __init__(self, options: Sequence[Option], typed: Sequence[str], workers: int | None) -> None:
        self._options, self._typed, self._workers = options, typed, workers
        names = {name for one in options for name in _names(one)}
        self._takes_batches = any(re.fullmatch(BATCHES, name) for name in names)
        self._learns = self._takes_batches and any(re.fullmatch(LEARNS, name) for name in names)
        self.has: set[str] = set()  # fixes that an option of it makes already

    def words_for(self, meaning: Meaning) -> Switch | None:
        for option in self._options:
            if self._means(option, meaning):
                if _has(option, meaning) and not self._waits(option, meaning):
                    self.has.add(meaning.fix)
                    return None
                if (words := self._words(option, meaning)) is not None:
                    return self._with_others(option, meaning, words)
        return None

    def _means(self, option: Option, meaning: Meaning) -> bool:
        names = _names(option)
        said = option.help.lower()
        if not meaning.is_called(names) or any(re.fullmatch(WORK, name) for name in names):
            return False
        if re.search(meaning.never, said) or (self._learns and _is_of_evaluation(said)):
            return False
        if re.search(meaning.says, said) or _listed(option, meaning):
            return True
        if not _says_no_more(option):
            return False
        is_value = _lower(option.value) in (*meaning.after, *meaning.words)
        is_plain = self._learns and option.form in ("on", "either")
        is_known = meaning.is_clear(names, is_plain) or (is_value and not self._switched_on(meaning))
        return is_known and self._takes_batches

    def _waits(self, option: Option, meaning: Meaning) -> bool:
        """Whether its value counts only once another option is switched on."""
        return _is_part_of_amp(option) and bool(self._switched_on(meaning))

    def _words(self, option: Option, meaning: Meaning) -> Switch | None:
        flag = _flag(option)
        if meaning.wanted in ("on", "off"):
            return _yes_or_no(option, flag, meaning, self._typed)
        value = {
            "word": _word_of,
            "number": self._number_of,
            "fused-name": _fused_name_of,
        }[meaning.wanted](option, meaning)
        return None if value is None else Switch(meaning.fix, _set(option, flag, value))

    def _number_of(self, option: Option, meaning: Meaning) -> str | None:
        wanted = AHEAD if meaning is AHEAD_OF_STEP else self._workers
        is_number = option.form in ("value", "global") and not option.choices
        known = option.value if option.value is not None else "0" if option.type == "int" else ""
        if wanted is None or not is_number or not re.fullmatch(r"-?\d+", known) or option.type == "float":
            return None
        return str(wanted) if int(known) < wanted else None

    def _with_others(self, option: Option, meaning: Meaning, made: Switch) -> Switch:
        """What has to be switched on with it, or goes with it."""
        before: tuple[str, ...] = ()
        behind: tuple[str, ...] = ()
        if self._waits(option, meaning):
            before = self._switched_on(meaning)
        if meaning.fix == "loader-workers" and meaning is not AHEAD_OF_STEP:
            ahead = self.words_for(AHEAD_OF_STEP)
            behind = ahead.words if ahead is not None else ()
        return Switch(made.fix, (*before, *made.words, *behind), made.leaves_out)

    def _switched_on(self, meaning: Meaning) -> tuple[str, ...]:
        for one in MEANINGS:
            if one.fix == meaning.fix and one.wanted == "on" and one.names == meaning.beside:
                for option in self._options:
                    if self._means(option, one) and not _is_on(option):
                        made = self._words(option, one)
                        return made.words if made is not None and not made.leaves_out else ()
        return ()


def _names(option: Option) -> set[str]:
    """Without dashes and without what stands before a point."""
    words = [*(flag.lstrip("-") for flag in option.flags), option.dest]
    found = {word.rpartition(".")[2].lower().replace("-", "_") for word in words}
    if option.form == "off":
        return {name.removeprefix("no_") for name in found}
    return found


def _says_no_more(option: Option) -> bool:
    """Whether its help only repeats its name: "number of workers", or there is none."""
    known = {word for name in _names(option) for word in name.split("_")}
    words = set(re.findall(r"[a-z]+", re.sub(r"%\(\w+\)\w", "", option.help.lower())))
    return words <= known | _FILLERS


def _is_of_evaluation(said: str) -> bool:
    return (
        re.search(r"\b(inference|eval(uation)?|validation|test(ing)?)\b", said) is not None
        and "train" not in said
    )


def _is_part_of_amp(option: Option) -> bool:
    said = " ".join((option.help, *_names(option))).replace("_", " ").lower()
    return re.search(r"\b(amp|autocast)\b", said) is not None


def _flag(option: Option) -> str:
    """The longest, which says most; not one that says no."""
    yes = [one for one in option.flags if not one.startswith("--no-")] or list(option.flags)
    return max(yes, key=len)


def _set(option: Option, flag: str, value: str) -> tuple[str, ...]:
    return (f"{flag}={value}",) if option.form == "global" else (flag, value)


def _lower(value: str | None) -> str:
    return (value or "").lower()


def _is_on(option: Option) -> bool:
    value = _lower(option.value)
    return bool(value) and value not in (*OFF, "none")


def _has(option: Option, meaning: Meaning) -> bool:
    """Whether it has the wanted value already."""
    value = _lower(option.value).removeprefix("torch.")
    if meaning.wanted == "on":
        return _is_on(option)
    if meaning.wanted == "off":
        return False  # one that is off has nothing to give, and says so by having no words
    if meaning.wanted == "fused-name":
        return "fused" in value
    return meaning.wanted == "word" and value in meaning.words


def _listed(option: Option, meaning: Meaning) -> bool:
    """Whether the values that it takes, as far as it tells them, are of this meaning."""
    if meaning.wanted == "fused-name":
        return _fused_name_of(option, meaning) is not None
    if meaning.wanted != "word":
        return False
    lists = [*option.choices, *_WORD.findall(f"{option.help} {option.type}".lower())]
    return any(_plain_word(one) in meaning.words for one in lists)


def _plain_word(word: str) -> str:
    return word.lower().removeprefix("torch.")


def _word_of(option: Option, meaning: Meaning) -> str | None:
    if option.form not in ("value", "optional", "global") or option.type in ("int", "float", "bool"):
        return None
    told = option.choices or tuple(_WORD.findall(f"{option.help} {option.type}".lower()))
    listed = {_plain_word(one): one for one in told}
    best = next((listed[word] for word in meaning.words if word in listed), None)
    if not option.choices and (best is None or _plain_word(best) == _lower(option.value)):  # said as default
        best = meaning.after.get(_lower(option.value))
    return best


def _fused_name_of(option: Option, _meaning: Meaning) -> str | None:
    value = option.value or ""
    ways = (f"{value}_fused", f"fused_{value}", f"fused{value}", f"{value}-fused")
    return next((one for one in ways if value and one in option.choices), None)


def _yes_or_no(option: Option, flag: str, meaning: Meaning, typed: Sequence[str]) -> Switch | None:
    on = meaning.wanted == "on"
    if on == _is_on(option):
        return None
    if option.form in ("on", "off"):
        is_set_so = (option.form == "on") == on
        if is_set_so:
            return Switch(meaning.fix, (flag,))
        given = next((one for one in option.flags if one in typed), None)
        return Switch(meaning.fix, (given,), leaves_out=True) if given is not None else None
    if option.form == "either":
        return Switch(meaning.fix, (flag if on else f"--no-{flag.removeprefix('--')}",))
    if option.form == "optional" and on and not _values(option):
        return Switch(meaning.fix, (flag,))
    value = _yes_value(option, on)
    return None if value is None else Switch(meaning.fix, _set(option, flag, value))


def _values(option: Option) -> tuple[str, ...]:
    return tuple(one.lower() for one in option.choices)


def _yes_value(option: Option, on: bool) -> str | None:
    """The value that says so of an option that takes one: of a boolean type, from a list of a yes and a no,
    or a number that is 0 or 1."""
    if option.form not in ("value", "optional", "global"):
        return None
    wanted, other = (ON, OFF) if on else (OFF, ON)
    values = dict(zip(_values(option), option.choices, strict=True))
    if values:
        is_pair = any(one in values for one in wanted) and any(one in values for one in other)
        return next((values[one] for one in wanted if one in values), None) if is_pair else None
    defaults = {_lower(option.default), _lower(option.value)}
    if option.type == "int" and option.form == "value":
        is_flag = defaults <= {"0", "1"}
        return str(int(on)) if is_flag and option.help else None
    is_boolean = bool(_BOOLEAN.search(option.type.lower())) or defaults & {"true", "false"}
    if not is_boolean or (option.type == "bool" and option.form == "value" and not on):
        return None  # of plain bool every text is true
    return str(on)
