"""Options of a program that do what a fix does: found in command lines like public ones, decoys passed by."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import replace

from findwall.agent.parsers.declared_options import of_argparse
from findwall.agent.parsers.script_globals import of_script
from findwall.fixes import all_fixes
from findwall.fixes.own_switches import own_switches
from findwall.fixes.switch_meanings import MEANINGS
from findwall.model.switches.program_options import Option
from findwall.model.switches.typed_switches import by_switch, own_name, switched_on
from fixes.public_parsers import STYLES

NANO = """
import os, sys, torch
from ast import literal_eval
# I/O
out_dir = 'out'
eval_only = False # if True, script exits right after the first eval
precision = 4 # digits of the printed loss
# data
gradient_accumulation_steps = 5 * 8 # used to simulate larger batch sizes
batch_size = 12 # if gradient_accumulation_steps > 1, this is the micro-batch size
num_workers = 1 # of the web server that shows samples
# system
device = 'cuda' # examples: 'cpu', 'cuda', 'cuda:0'
dtype = 'float32' # 'float32', 'bfloat16', or 'float16', the latter will auto implement a GradScaler
compile = False # use PyTorch 2.0 to compile the model to be faster
config_keys = [k for k, v in globals().items() if isinstance(v, (int, float, bool, str))]
exec(open('configurator.py').read())
late = True # not an option
"""
CONFIGURATOR = """
import sys
for arg in sys.argv[1:]:
    key, val = arg.split('=')
    globals()[key[2:]] = val
"""


@pytest.mark.parametrize("style", STYLES)
def test_what_a_public_command_line_has_is_found_and_nothing_else(style: str) -> None:
    make, typed, wanted = STYLES[style]
    parser, words = make(), shlex.split(typed)
    options = of_argparse(parser, parser.parse_args(words))
    found = own_switches(options, words, workers=8)
    assert {fix: switch.typed for fix, switch in found.items()} == wanted
    for fix, switch in found.items():  # the parser takes it, and then there is nothing left to switch
        given = switched_on(words, [by_switch(fix, switch)])
        again = of_argparse(parser, parser.parse_args(given))
        assert fix not in own_switches(again, given, workers=8)


def test_globals_of_a_script_are_options_with_their_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("configurator.py").write_text(CONFIGURATOR)
    Path("train.py").write_text(NANO)
    main = ModuleType("__main__")
    main.__file__ = str(tmp_path / "train.py")
    vars(main).update(
        out_dir="out", eval_only=False, precision=4, batch_size=12, num_workers=1, device="cuda"
    )
    vars(main).update(dtype="float32", compile=False, gradient_accumulation_steps=40, late=True)
    options = of_script(main, ["--batch_size=4"])
    assert "late" not in {one.dest for one in options}
    found = own_switches(options, ["--compile=False", "--batch_size=4"], workers=8)
    assert {fix: switch.typed for fix, switch in found.items()} == {
        "bf16-autocast": "--dtype=bfloat16",
        "torch-compile": "--compile=True",
    }
    stack = [by_switch(fix, switch) for fix, switch in found.items()]
    made = switched_on(["--compile=False", "--batch_size=4"], stack)
    assert made == ("--batch_size=4", "--dtype=bfloat16", "--compile=True")
    Path("configurator.py").write_text("print('it sets nothing')")
    assert of_script(main, []) == []


def test_a_name_alone_is_no_switch() -> None:
    batches = Option(("--batch-size",), "batch_size", "value", "int", value="8")
    rate = Option(("--lr",), "lr", "value", "float", value="0.1")
    for name in ("compile", "flash", "amp", "benchmark"):
        option = Option((f"--{name}",), name, "on", value="False")
        number = replace(option, form="value", type="float", value="0")
        assert own_switches([batches, option]) == own_switches([batches, rate, number]) == {}
        is_found = bool(own_switches([batches, rate, option]))  # by its form, in a program that trains
        assert is_found == (name != "benchmark")
    workers = Option(("--workers",), "workers", "value", "int", value="0")
    assert own_switches([workers], workers=4) == {}
    assert set(own_switches([batches, workers], workers=4)) == {"loader-workers"}
    assert own_switches([batches, replace(workers, type="float")], workers=4) == {}


@pytest.mark.parametrize(
    ("name", "kind", "said", "is_found"),
    [  # of the kinds that public scripts have
        ("num_workers", "int", "Number of workers", True),
        ("num_workers", "int", "number of workers (default: %(default)s)", True),
        ("num_workers", "int", "workers of the dataloader", True),
        ("workers", "int", "workers that do the data loading", True),
        ("workers", "int", "objects copied at a time; more of them are throttled", False),
        ("workers", "int", "workers that the experiments are spread over", False),
        ("workers", "int", "searches at a time", False),
        ("compile", "on", "with torch.compile; keep it on when you resume", True),
        ("compile", "on", "calls torch.compile on the network", True),
        ("compile", "on", "compile the contracts", False),
        ("compile", "on", "compile the benchmark and stop", False),
        ("compile", "on", "compile the solver first", False),
        ("fused", "on", "the fused attention kernel", True),
        ("fused", "on", "fused detections of all sensors", False),
        ("flash", "on", "write the logger to the device and exit", False),
        ("flash", "on", "take the cheap model everywhere", False),
        ("channels-last", "on", "inputs are NHWC, and turned to NCHW", False),
        ("channels-last", "on", "usa channels_last", True),
        ("native-amp", "on", "", True),
        ("pin", "int", "GPIO pin of the lamp", False),
        ("half", "on", "half precision in what is exported", False),
        ("half", "on", "half-precision inference", False),
        ("half", "float", "half of the extent, in metres", False),
        ("fp16", "on", "fp16, which is faster", True),
        ("amp", "on", "fp16 AMP for inference", False),
        ("amp", "on", "mixed precision on a GPU", True),
    ],
)
def test_help_decides(name: str, kind: str, said: str, is_found: bool) -> None:
    """In a program that trains."""
    trains = [Option((f"--{one}",), one, "value", "float", value="1") for one in ("batch_size", "lr")]
    form, of = ("on", "") if kind == "on" else ("value", kind)
    value = "False" if kind == "on" else "0"
    option = Option((f"--{name}",), name, form, of, value=value, help=said)  # type: ignore[arg-type]
    assert bool(own_switches([*trains, option], workers=4)) == is_found


def test_a_program_that_only_infers_switches_its_inference() -> None:
    size = Option(("--batch-size",), "batch_size", "value", "int", value="1")
    half = Option(("--fp16",), "fp16", "on", value="False", help="fp16 for inference, where there is one")
    assert own_switches([size, half])["bf16-autocast"].typed == "--fp16"


def test_what_changes_the_work_of_a_step_is_never_switched() -> None:
    for name in ("batch-size", "grad-accum-steps", "seq-length", "update-freq", "block-size", "imgsz"):
        option = Option(
            (f"--{name}",), name, "value", "int", value="1", help="bf16 torch.compile data loading"
        )
        assert own_switches([option], workers=8) == {}


def test_what_is_behind_two_dashes_is_no_option() -> None:
    pinned = Option(("--pin-memory",), "pin_memory", "on", value="False", help="pin batches")
    assert own_switches([pinned]) and not own_switches([pinned], ["--", "x"])


def test_what_was_typed_before_is_replaced() -> None:
    pairs = [("tf32", "--tf32 True"), ("loader-workers=4", "--workers 4")]
    stack = [f"{fix} by {typed}" for fix, typed in pairs] + ["channels-last"]
    typed = ["data", "--tf32", "False", "--workers=0", "-x", "--no-tf32"]
    assert switched_on(typed, stack) == ("data", "-x", "--tf32", "True", "--workers", "4")
    assert switched_on(["--remat", "--lr", "1"], ["less-recompute by leaving out --remat"]) == ("--lr", "1")
    assert [own_name(one) for one in stack] == ["tf32", "loader-workers=4", "channels-last"]


@pytest.mark.parametrize("fix", sorted({one.fix for one in MEANINGS}))
def test_each_fix_that_is_switched_can_be_seen(fix: str) -> None:
    assert all_fixes()[fix].shows is not None
