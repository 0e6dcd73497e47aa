"""A number put to another value: everything in the process that reads it must see that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
BEGIN = """
import gc, sys
from types import FunctionType
from count_numbers import SOURCE
from literals import numbers_in
from perturbed import Package, forget, run_lines
package = Package(("replay", "model"))  # two rooms: to read and load them all takes most of the time
package.load()
every = [one for module in package.trees for one in numbers_in((SOURCE / module).read_text(), module)]
"""
CONSTANT = """
from findwall.model import catalogue, kinds
number = next(one for one in every if one.name == "MAJORITY_SHARE")
assert package.sites(number)
package.put(number, 0.25)
assert catalogue.MAJORITY_SHARE == 0.25
assert kinds.MAJORITY_SHARE == 0.25  # imported from there
assert kinds.MUCH_FASTER == 0.25  # computed from that
"""
LITERAL = """
number = next(one for one in every if one.place == "compared" and one.value == 1e-9)
site, = package.sites(number)
assert site.first <= number.line <= site.last
package.put(number, 12345.5)
functions = [one.__code__ for one in gc.get_objects() if isinstance(one, FunctionType)]
assert any(12345.5 in one.co_consts for one in functions if one.co_filename == site.file)
"""
LINES = """
from findwall.model import kinds
from perturbed import Site
import inspect
lines, first = inspect.getsourcelines(kinds.even_distance)
both = [Site(kinds.__file__, first, first + len(lines) - 1)]
seen = run_lines(both)
kinds.even_distance([1])
short = set(seen)
kinds.even_distance([1, 3, 5, 7])
sys.settrace(None)
assert short and short < seen
"""


def test_a_number_put_to_another_value_is_seen_by_all() -> None:
    """One after the other in one process: to load the package is what takes the time."""
    subprocess.run([sys.executable, "-c", BEGIN + LINES + LITERAL + CONSTANT], cwd=BENCHMARKS, check=True)
