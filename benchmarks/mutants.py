"""Do the tests notice when the code that decides is wrong?

    python benchmarks/mutants.py draw                            40 mutants, into results/mutants.json
    python benchmarks/mutants.py run --as before --at 042e558    try each on the commit they were drawn on
    python benchmarks/mutants.py run --as after [-j N]           and on this tree; goes on where it stopped
    python benchmarks/mutants.py show                            what was killed, and what was not

A mutant is one line of the rooms that decide, changed in one place: a comparison turned round, a plus made a
minus, a number changed, `and` made `or`, a condition negated, a statement removed. It is tried against the
tests of its own folder and the laws (`LAWS` in the Makefile), those first that name its module. It is killed
where a test fails. It is kept by the text of its line and the name of its function, so that it is found again
when the code has moved; what is found nowhere any more is listed as gone.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "benchmarks" / "results" / "mutants.json"
COMMIT = "042e558"
SEED = 40
COUNT = 40
ROOMS = ("attribute", "structure", "replay", "walls", "fixes", "examine")
# And what they became: the rooms whose tests a mutant may be tried against.
DECIDING = (*ROOMS, "step", "work", "facts", "causes", "ncu", "op", "probe", "watch", "readers")
TIMEOUT_S = 3600.0

TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "!=", "!=": "=="}
TURNED |= {"in": "not in", "not in": "in", "is": "is not", "is not": "is"}
COMPARED = {ast.Lt: "<", ast.Gt: ">", ast.LtE: "<=", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
COMPARED |= {ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not"}
SWAPPED = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*")}


@dataclass
class Mutant:
    """`line` and `changed` are the whole line, not indented; `nth` counts equal lines of a function."""

    kind: str
    path: str
    function: str
    line: str
    changed: str
    nth: int
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def room(self) -> str:
        return self.path.split("/")[2]

    @property
    def name(self) -> str:
        return f"{self.path.removeprefix('src/findwall/')} {self.function}: {self.line}  ->  {self.changed}"


# -- drawing ----------------------------------------------------------------------------------------------


def draw(commit: str) -> list[Mutant]:
    """As many of each kind, at most one in a function, in an order that the seed decides."""
    chance = random.Random(SEED)
    by_kind: dict[str, list[Mutant]] = {}
    for path in sources(commit):
        for one in mutants_of(path, _git("show", f"{commit}:{path}")):
            by_kind.setdefault(one.kind, []).append(one)
    for kind in sorted(by_kind):
        chance.shuffle(by_kind[kind])
    found: list[Mutant] = []
    while len(found) < COUNT:
        for kind in sorted(by_kind):
            taken = {(one.path, one.function) for one in found}
            fresh = (one for one in by_kind[kind] if (one.path, one.function) not in taken)
            if len(found) < COUNT:
                found.append(next(fresh))
    return sorted(found, key=lambda one: (one.path, one.function, one.line))


def sources(commit: str) -> list[str]:
    folders = [f"src/findwall/{room}" for room in ROOMS]
    names = _git("ls-tree", "-r", "--name-only", commit, *folders).splitlines()
    return [name for name in names if name.endswith(".py")]


def mutants_of(path: str, text: str) -> Iterator[Mutant]:
    lines = text.splitlines()
    found = dict(functions(ast.parse(text)))
    for function, node in advising(found).items() if "/fixes/" in path else found.items():
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        for kind, number, changed in changes(body, lines):
            whole = lines[number - 1].strip()
            if changed.strip() != whole:
                same = [at for at in range(node.lineno, number) if lines[at - 1].strip() == whole]
                yield Mutant(kind, path, function, whole, changed.strip(), len(same))


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """With their names as `Class.function`. A function inside another belongs to that one."""
    for node in tree.body:
        if isinstance(node, Function):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, Function):
                    yield f"{node.name}.{inner.name}", inner


def advising(found: dict[str, Function]) -> dict[str, Function]:
    """What `advise` comes to use. How a fix is made in a live job or written into a patch decides nothing."""
    if "advise" not in found:
        return found
    reached, new = set(), {"advise"}
    while new:
        reached |= new
        used = {node.id for name in new for node in ast.walk(found[name]) if isinstance(node, ast.Name)}
        new = (used & found.keys()) - reached
    return {name: found[name] for name in found if name in reached}


def changes(body: list[ast.stmt], lines: list[str]) -> Iterator[tuple[str, int, str]]:
    """Kind, number and new text of each line that can be changed in one place."""
    for statement in body:
        for node in ast.walk(statement):
            for kind, start, end, new in places(node):
                if start[0] == end[0]:
                    line = lines[start[0] - 1].encode()  # columns are counted in bytes
                    old = line[start[1] : end[1]].decode()
                    other = new(old)
                    if other is not None:
                        text = line[: start[1]].decode() + other + line[end[1] :].decode()
                        yield kind, start[0], text


def places(node: ast.AST) -> Iterator[tuple[str, tuple[int, int], tuple[int, int], Any]]:
    """Where a node can be changed: the kind, from and to, and what is put for what stands there."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        sign = COMPARED[type(node.ops[0])]
        yield "comparison", _end(node.left), _start(node.comparators[0]), _swap(sign, TURNED[sign])
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPPED and not _has_text(node):
        yield "arithmetic", _end(node.left), _start(node.right), _swap(*SWAPPED[type(node.op)])
    if isinstance(node, ast.BoolOp):
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        yield "and/or", _end(node.values[0]), _start(node.values[1]), _swap(*words)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield "constant", _start(node), _end(node), lambda _: _other(node.value)
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield "negation", _start(node.test), _end(node.test), lambda old: f"not ({old})"
    if isinstance(node, ast.Continue | ast.Raise | ast.AugAssign) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield "removal", _start(node), _end(node), lambda _: "pass"
    if isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], ast.Return):
        yield "removal", _start(node.body[-1]), _end(node.body[-1]), lambda _: "pass"


def _swap(old: str, new: str) -> Any:
    return lambda text: text.replace(old, new, 1) if old in text else None


def _other(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return str(not value)
    return str(value + 1) if isinstance(value, int) else repr(2 * value if value else 1.0)


def _has_text(node: ast.AST) -> bool:
    return any(isinstance(one, ast.JoinedStr) or _is_text(one) for one in ast.walk(node))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _start(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: Any) -> tuple[int, int]:
    return node.end_lineno, node.end_col_offset


# -- finding it again, and trying it -----------------------------------------------------------------------


def put(one: Mutant, tree: Path) -> tuple[Path, str] | None:
    """The file that holds it now, and the file's text with it. Its own file first, then any other."""
    own = tree / one.path
    others = sorted((tree / "src" / "findwall").rglob("*.py"))
    for path in [own, *others] if own.exists() else others:
        text = path.read_text()
        if one.line in text and (changed := _changed(one, text)) is not None:
            return path, changed
    # The same line of the same file, in a function that has another name now.
    for path in others:
        if (
            path.name == own.name
            and (changed := _changed(one, path.read_text(), any_function=True)) is not None
        ):
            return path, changed
    return None


def _changed(one: Mutant, text: str, any_function: bool = False) -> str | None:
    lines = text.splitlines(keepends=True)
    for function, node in functions(ast.parse(text)):
        # A method may have become a function, and the other way round.
        if not any_function and function.split(".")[-1] != one.function.split(".")[-1]:
            continue
        span = range(node.lineno - 1, node.end_lineno or node.lineno)
        same = [at for at in span if lines[at].strip() == one.line]
        if same:
            at = same[min(one.nth, len(same) - 1)]
            lines[at] = lines[at].replace(one.line, one.changed)
            return "".join(lines)
    return None


def copy(to: Path, commit: str | None) -> Path:
    """The tree as it is here, or as a commit has it, with `../shared` beside it where there is one."""
    tree = to / "project"
    tree.mkdir(parents=True)
    if commit is not None and Path(commit).is_dir():
        shutil.copytree(commit, tree, dirs_exist_ok=True)
    elif commit is not None:
        with subprocess.Popen(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE) as packed:
            subprocess.run(["tar", "--extract"], cwd=tree, stdin=packed.stdout, check=True)
    else:
        for name in _git("ls-files", "-co", "--exclude-standard").splitlines():
            if (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, tree / name)
    if (ROOT.parent / "shared").is_dir():
        (to / "shared").symlink_to(ROOT.parent / "shared")
    return tree


def laws(tree: Path) -> list[str]:
    """As the Makefile lists them, one by one."""
    text = (tree / "Makefile").read_text().replace("\\\n", " ")
    listed = re.search(r"^LAWS := (.*)$", text, re.MULTILINE)
    assert listed is not None
    return [name for word in listed[1].split() for name in test_files(tree, word)]


def test_files(tree: Path, place: str) -> list[str]:
    at = tree / place
    found = sorted(at.rglob("test_*.py")) if at.is_dir() else [at] if at.exists() else []
    return [str(path.relative_to(tree)) for path in found]


def order(one: Mutant, holder: Path, tree: Path) -> list[str]:
    """The tests of its folder and the laws; those first that name its module, small before large."""
    folder = holder.relative_to(tree / "src" / "findwall").parts[0]
    names = dict.fromkeys([*test_files(tree, f"tests/{folder}"), *laws(tree)])
    module = re.compile(rf"\b{holder.stem}\b|\b{one.function.split('.')[-1]}\b")
    texts = {name: (tree / name).read_text() for name in names}
    own = f"test_{holder.stem}.py"

    def rank(name: str) -> tuple[bool, bool, int]:
        return not name.endswith(own), module.search(texts[name]) is None, len(texts[name])

    return sorted(names, key=rank)


def attempt(one: Mutant, tree: Path, broken: list[str]) -> dict[str, Any]:
    found = put(one, tree)
    if found is None:
        return {"outcome": "gone"}
    holder, text = found
    names = [*order(one, holder, tree), *(f"--deselect={test}" for test in broken)]
    was, begun = holder.read_text(), time.monotonic()
    holder.write_text(text)
    try:
        outcome = _tested(tree, names)
    finally:
        holder.write_text(was)
    # A test that fails without the mutant as well has killed nothing.
    if (
        outcome["outcome"] == "killed"
        and "::" in outcome["by"]
        and _tested(tree, [outcome["by"]])["outcome"] != "survived"
    ):
        outcome["outcome"] = "unclear"
    where = {"path": str(holder.relative_to(tree))} if str(holder.relative_to(tree)) != one.path else {}
    return {**outcome, **where, "seconds": round(time.monotonic() - begun)}


def failing(tree: Path, names: list[str]) -> list[str]:
    """Tests that fail here without a mutant: they kill nothing."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", *names]
    env = {**os.environ, "PYTHONPATH": _path(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True) if names else None
    return re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout if done else "", re.MULTILINE)


def _shares(trees: list[Path]) -> list[tuple[Path, list[str]]]:
    """All that is ever run, dealt out over the trees."""
    folders = [f"tests/{path.name}" for path in (trees[0] / "src" / "findwall").iterdir() if path.is_dir()]
    names = sorted({*laws(trees[0]), *(name for one in folders for name in test_files(trees[0], one))})
    wanted = [name for name in names if name.split("/")[1] in DECIDING] + laws(trees[0])
    wanted = sorted(set(wanted), key=lambda name: -len((trees[0] / name).read_text()))
    return [(tree, wanted[at :: len(trees)]) for at, tree in enumerate(trees)]


def _path(tree: Path) -> str:
    """Where Python finds the tree's own package, and what the caller's path holds besides."""
    return os.pathsep.join([str(tree / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])


def _tested(tree: Path, names: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", *names]
    env = {**os.environ, "PYTHONPATH": _path(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return {"outcome": "killed", "by": f"no end in {TIMEOUT_S:.0f} s"}
    if done.returncode == 0:
        return {"outcome": "survived"}
    by = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if done.returncode not in (1, 2) or not by:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    return {"outcome": "killed", "by": by[0].split("[")[0]}


# -- what is kept -----------------------------------------------------------------------------------------


def load() -> list[Mutant]:
    return [Mutant(**row) for row in json.loads(KEPT.read_text())["mutants"]]


def save(mutants: list[Mutant]) -> None:
    rows = ",\n".join(json.dumps(asdict(one), ensure_ascii=False) for one in mutants)
    KEPT.write_text(f'{{\n"commit": "{COMMIT}", "seed": {SEED}, "mutants": [\n{rows}\n]}}\n')


def run(jobs: int, name: str, commit: str | None, again: bool) -> None:
    mutants, lock = load(), Lock()
    left = [one for one in mutants if again or name not in one.outcomes]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        trees = [copy(Path(folder) / str(at), commit) for at in range(jobs)]
        broken = list(pool.map(lambda share: failing(*share), _shares(trees)))
        broken = sorted({test for found in broken for test in found})
        print(f"{len(broken)} tests fail without a mutant and are left out: {broken[:5]}", flush=True)

        def one_more(one: Mutant) -> None:
            with lock:
                tree = trees.pop()
            outcome = attempt(one, tree, broken)
            with lock:
                trees.append(tree)
                one.outcomes[name] = outcome
                save(mutants)
            print(f"{outcome['outcome']:9}{one.name}  {outcome.get('by', '')}", flush=True)

        list(pool.map(one_more, left))
    show(name)


def show(name: str | None) -> None:
    mutants = load()
    for which in [name] if name else sorted({key for one in mutants for key in one.outcomes}):
        told = [one.outcomes[which] for one in mutants if which in one.outcomes]
        counts = Counter(one["outcome"] for one in told)
        print(f"{which}: {', '.join(f'{word} {n}' for word, n in counts.items())} of {len(mutants)}")
        for one in mutants:
            if one.outcomes.get(which, {}).get("outcome") != "killed" and which in one.outcomes:
                print(f"  {one.outcomes[which]['outcome']}: {one.name}")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("draw", "run", "show"))
    parser.add_argument("--at", help="run: on this commit and its tests, or on the tree in this folder")
    parser.add_argument("-j", type=int, default=1, help="mutants at a time")
    parser.add_argument("--as", dest="name", help="keep the outcome under this name (before, after)")
    parser.add_argument("--again", action="store_true", help="also those that have an outcome")
    asked = parser.parse_args()
    if asked.what == "draw":
        save(draw(COMMIT))
    elif asked.what == "run":
        run(asked.j, asked.name or "after", asked.at, asked.again)
    else:
        show(asked.name)


if __name__ == "__main__":
    main()
