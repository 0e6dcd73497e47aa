"""What Nsight Compute prints is read whole or not at all."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from captures import FIXTURES
from findwall.errors import InputError
from findwall.model.ncu_kernel import NCU, NcuKernel
from findwall.ncu.ncu_numbers import FigureError, figure, scale, triple
from findwall.ncu.ncu_reader import accepts, read_report
from findwall.readers import open_run
from ncu_samples import ADD, ROOF, identity, long, wide, written

CHATTER = '==PROF== Connected to process 17 (/usr/bin/python3.12)\nstep 1, loss 0.5 "so far\n{"loss": 1}\n'


def saved(folder: Path, text: str | bytes, name: str = "kernels.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def only(path: Path) -> NcuKernel:
    (kernel,) = read_report(path).kernels
    return kernel


def test_the_wide_shape_is_read_with_its_units(tmp_path: Path) -> None:
    figures = {**ROOF, "read": "268.45184", "written": "244.24832", "device": "NVIDIA H200"}
    path = saved(tmp_path, wide([(ADD, figures)]))
    report = read_report(path)
    kernel = only(path)
    assert (report.device, report.page, report.notes) == ("NVIDIA H200", "raw", ())
    assert kernel.duration_ns == 125_500
    assert kernel.dram == pytest.approx(0.8493)
    assert kernel.dram_bytes == pytest.approx(512_700_160)
    assert (kernel.grid, kernel.block, kernel.capability) == ((65536, 1, 1), (128, 1, 1), 9)


def test_the_long_shape_says_the_same(tmp_path: Path) -> None:
    kernel = only(saved(tmp_path, long([(ADD, ROOF)])))
    assert (kernel.duration_ns, kernel.dram, kernel.sm) == (125_500, pytest.approx(0.8493), 0.0819)
    assert kernel.tensor is None  # it is not on the details page: unknown, not 0


def test_rules_hold_what_the_details_page_does_not_print_as_metrics(tmp_path: Path) -> None:
    rules = [
        "This kernel has uncoalesced global accesses resulting in a total of 750 excessive sectors (75% of "
        "the total 1000 sectors). Check the table.",
        "Shared is the highest-utilized pipeline (30.1%) based on elapsed cycles. It's dominated by its "
        "Tensor (FP) sub-pipeline. It is well-utilized.",
        "On average, each warp of this workload spends 5.9 cycles being stalled waiting for sibling warps at "
        "a CTA barrier. This stall type represents about 30.3% of the total average of 19.6 cycles.",
    ]
    kernel = only(saved(tmp_path, long([(ADD, ROOF)], rules)))
    assert (kernel.wasted, kernel.tensor, kernel.stall) == (0.75, pytest.approx(0.301), "barrier")
    assert kernel.stall_share == pytest.approx(0.303)


def test_sentences_that_read_otherwise_say_nothing(tmp_path: Path) -> None:
    rules = [
        "Tensor is the highest-utilized pipeline (30.1.2%) based on elapsed cycles.",
        "a total of 1,,5 excessive sectors (1% of the total 0 sectors)",
        "each warp of this workload spends 5.9 cycles being stalled waiting for a miracle. This stall type "
        "represents about 3.0.3% of the total.",
        "This results in 5 bank conflicts,  which represent 1.0% of the overall 4 wavefronts for shared "
        "loads.",
    ]
    kernel = only(saved(tmp_path, long([(ADD, ROOF)], rules)))
    assert (kernel.tensor, kernel.wasted, kernel.stall, kernel.bank_conflicts) == (None, None, None, None)


def test_a_pipe_that_is_not_the_tensor_cores_says_nothing_of_them(tmp_path: Path) -> None:
    rule = "FMA is the highest-utilized pipeline (71.0%) based on elapsed cycles in the workload."
    assert only(saved(tmp_path, long([(ADD, ROOF)], [rule]))).tensor is None


def test_metrics_may_be_printed_by_name(tmp_path: Path) -> None:
    own = identity(0, ADD)
    header = written([["ID", "Process ID", "Process Name", "Host Name", "Kernel Name"]]).strip()
    header += ',"Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name"'
    header += ',"Metric Unit","Metric Value"\n'
    body = written(
        [
            [*own, "Command line profiler metrics", "gpu__time_duration.sum", "nsecond", "2,048"],
            [*own, "Command line profiler metrics", "DRAM (dram__bytes.sum)", "Kbyte", "1,024.5"],
        ]
    )
    kernel = only(saved(tmp_path, header + body))
    assert (kernel.duration_ns, kernel.dram_bytes) == (2048, 1_024_500)


@pytest.mark.parametrize("make", [wide, long])
def test_chatter_around_the_table_is_skipped(tmp_path: Path, make: object) -> None:
    text = make([(ADD, ROOF)])  # type: ignore[operator]
    header, _, body = text.partition("\n")
    noisy = f"{CHATTER}{header}\n==WARNING== something\n{body}step 2 done\n==PROF== Disconnected\n"
    path = saved(tmp_path, noisy)
    assert accepts(path, noisy.encode()[:256])
    assert only(path) == only(saved(tmp_path, text, "plain.csv"))
    assert "3 lines" in read_report(path).notes[-1]


def test_compressed_files_are_read(tmp_path: Path) -> None:
    path = saved(tmp_path, gzip.compress(wide([(ADD, ROOF)]).encode()), "kernels.csv.gz")
    run = open_run([path])
    assert run.kind == NCU
    assert run.ncu is not None and len(run.ncu.kernels) == 1


@pytest.mark.parametrize("make", [wide, long])
def test_a_file_cut_off_anywhere_gives_no_wrong_figure(tmp_path: Path, make: object) -> None:
    text = make([(ADD, ROOF), (ADD, {**ROOF, "duration": "1,250.5"})])  # type: ignore[operator]
    whole = read_report(saved(tmp_path, text)).kernels
    refused = 0
    for length in range(len(text)):
        try:
            kernels = read_report(saved(tmp_path, text[:length], "cut.csv")).kernels
        except InputError as error:
            assert error.hint
            refused += 1
            continue
        for kernel, true in zip(kernels, whole, strict=False):
            for field in kernel.__struct_fields__:
                assert getattr(kernel, field) in (None, getattr(true, field)), (length, field)
    assert refused > len(text) // 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "not a table of Nsight Compute"),
        ("==PROF== Connected\n==ERROR== No kernels were profiled.\n", "no table of kernels"),
        (wide([(ADD, ROOF)]) * 2, "more than one table"),
        (wide([(ADD, {"dram": "84.93"})]), "does not say how long"),
        (wide([(ADD, ROOF)]).replace('"Device"', '"Stream"'), "twice"),
        ("\n".join(wide([(ADD, ROOF)]).splitlines()[::2]), "row of units"),
        (wide([(ADD, ROOF)]).splitlines()[0] + "\n", "row of units"),
        (long([(ADD, ROOF)]).splitlines()[0] + "\n", "holds no kernels"),
        (long([(ADD, ROOF)]).replace('"Metric Value"', '"Average"'), "summary"),
        ('"Process ID","Kernel Name","Invocations","Average"\n"1","a, b","3","4"\n', "summary"),
        (long([(ADD, ROOF)]).replace('"Metric Unit"', '"Unit"'), "no column of units"),
    ],
)
def test_what_is_no_whole_table_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as error:
        read_report(saved(tmp_path, text))
    assert error.value.hint


def test_figures_that_cannot_be_are_unknown_and_said(tmp_path: Path) -> None:
    path = saved(tmp_path, wide([(ADD, {**ROOF, "dram": "184.9", "sm": "about 8"})]))
    kernel = only(path)
    assert (kernel.dram, kernel.sm, kernel.memory) == (None, None, pytest.approx(0.8493))
    assert "gpu__dram_throughput" in read_report(path).notes[0]


@pytest.mark.parametrize("figure", ["8,19", "0,125", "2.508.800", "1.250,5", "12,34567"])
def test_figures_with_a_decimal_comma_are_refused_whole(tmp_path: Path, figure: str) -> None:
    for make in (wide, long):
        path = saved(tmp_path, make([(ADD, ROOF), (ADD, {**ROOF, "waves": figure})]))
        with pytest.raises(InputError, match="decimal comma") as error:
            read_report(path)
        assert "LC_ALL=C" in error.value.hint


def test_whole_numbers_grouped_by_dots_are_not_taken_for_fractions(tmp_path: Path) -> None:
    text = wide([(ADD, {**ROOF, "read": "508.800"})])
    assert only(saved(tmp_path, text)).dram_bytes is None  # megabytes may have fractions
    with pytest.raises(InputError, match="decimal comma"):
        read_report(saved(tmp_path, text.replace('"Mbyte"', '"byte"')))


def test_labels_of_2020_are_known(tmp_path: Path) -> None:
    own = ["0", "17", "cfd", "127.0.0.1", "step(int,float*)", "2020-May-29 12:02:46", "1", "7"]
    header = [
        "ID",
        "Process ID",
        "Process Name",
        "Host Name",
        "Kernel Name",
        "Kernel Time",
        "Context",
        "Stream",
    ]
    header += ["Section Name", "Metric Name", "Metric Unit", "Metric Value"]
    light = "GPU Speed Of Light"
    rows = [
        header,
        [*own, light, "SOL FB", "%", "46.47"],
        [*own, light, "SM [%]", "%", "22.48"],
        [*own, light, "Memory [%]", "%", "46.47"],
        [*own, light, "Duration", "nsecond", "8992"],
    ]
    kernel = only(saved(tmp_path, written(rows)))
    assert (kernel.duration_ns, kernel.dram, kernel.sm, kernel.memory) == (8992, 0.4647, 0.2248, 0.4647)
    assert (kernel.grid, kernel.capability) == (None, None)


def test_a_kernel_of_two_names_is_damage(tmp_path: Path) -> None:
    lines = long([(ADD, ROOF)]).splitlines(keepends=True)
    lines[2] = lines[2].replace("vectorized", "other")
    with pytest.raises(InputError, match="two names"):
        read_report(saved(tmp_path, "".join(lines)))


@pytest.mark.parametrize(
    ("text", "value"), [("130,316", 130316), ("0.197", 0.197), ("1.5e+06", 1.5e6), ("no data", None)]
)
def test_figures(text: str, value: float | None) -> None:
    assert figure(text) == value


@pytest.mark.parametrize("text", ["1.234,5", "12,34", "abc", "0x1", "1,2345", "1e999", "9" * 400])
def test_what_is_no_figure_is_none(text: str) -> None:
    with pytest.raises(FigureError):
        figure(text)


def test_units_of_another_kind_are_refused() -> None:
    assert scale("Tbyte/s", "byte/s") == 1e12
    assert scale("Kbyte/block", "byte") is None
    assert scale("%", "ns") is None
    assert scale("usecond", "ns") == 1e3
    assert triple("(65,536, 2, 1)") == (65536, 2, 1)
    assert triple("(1,2,3)") == (1, 2, 3)
    for nonsense in ("all", "(,, 1, 1)", "(1, 2)", "(" + "9" * 5000 + ", 1, 1)"):
        assert triple(nonsense) is None


def test_a_table_beside_traces_is_no_rank(tmp_path: Path) -> None:
    path = saved(tmp_path, wide([(ADD, ROOF)]))
    with pytest.raises(InputError, match="--ncu"):
        open_run([path, path])
    with pytest.raises(InputError, match="no readable trace"):
        open_run([tmp_path])


class TestReports:
    """`.ncu-rep`, through NVIDIA's module where it is."""

    REPORT = b"NVR\0" + bytes(64)
    MODULE = """
class IContext: pass
class IRange: pass
class IAction:
    NameBase_DEMANGLED = 1
class IMetric: pass

class Metric:
    def __init__(self, value, unit):
        self.value, self._unit = value, unit
    def has_value(self): return True
    def as_double(self): return self.value if isinstance(self.value, float) else None
    def as_uint64(self): return self.value
    def as_string(self): return str(self.value)
    def unit(self): return self._unit

METRICS = {
    "gpu__time_duration.sum": Metric(2048.0, "ns"),
    "dram__bytes.sum": Metric(4096.0, "byte"),
    "device__attribute_display_name": Metric("NVIDIA H200", ""),
    **{f"launch__grid_dim_{side}": Metric(3, "") for side in "xyz"},
}

class Action:
    def name(self, base=0): return "kernel"
    def metric_names(self): return list(METRICS)
    def metric_by_name(self, name): return METRICS.get(name)

class Range:
    def num_actions(self): return 1
    def action_by_idx(self, index): return Action()

class Context:
    def __init__(self, count): self.count = count
    def num_ranges(self): return self.count
    def range_by_idx(self, index): return Range()

def load_report(path):
    return Context(0 if open(path, "rb").read().endswith(b"foreign") else 1)
"""

    @pytest.fixture
    def module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        folder = tmp_path / "python"
        folder.mkdir()
        (folder / "ncu_report.py").write_text(self.MODULE)
        (folder / "_ncu_report.so").write_bytes(b"")
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, "ncu_report", raising=False)
        return folder

    def test_it_is_read_by_the_module(self, module: Path, tmp_path: Path) -> None:
        path = saved(tmp_path, self.REPORT, "one.ncu-rep")
        kernel = only(path)
        assert (kernel.duration_ns, kernel.dram_bytes, kernel.grid) == (2048, 4096, (3, 3, 3))
        assert read_report(path).device == "NVIDIA H200"
        sys.modules.pop("ncu_report", None)

    def test_what_loads_and_holds_nothing_is_refused(self, module: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="holds no kernels"):
            read_report(saved(tmp_path, self.REPORT + b"foreign", "one.ncu-rep"))
        sys.modules.pop("ncu_report", None)

    def test_another_module_of_that_name_is_not_run(
        self, module: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (module / "_ncu_report.so").unlink()
        (module / "ncu_report.py").write_text("print('it ran')")
        with pytest.raises(InputError, match="ncu --import"):
            read_report(saved(tmp_path, self.REPORT, "one.ncu-rep"))
        assert capsys.readouterr().out == ""

    def test_one_that_lies_beside_the_report_is_not_run(
        self, module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(module)  # as `python -m findwall` has it: the current folder is searched first
        path = saved(tmp_path, self.REPORT, "one.ncu-rep")
        for first in (str(module), ""):
            monkeypatch.setattr(sys, "path", [first, *(one for one in sys.path if one != str(module))])
            with pytest.raises(InputError, match="only NVIDIA's own tools"):
                read_report(path)
            assert "ncu_report" not in sys.modules
            assert sys.path[0] == first

    def test_without_it_the_line_to_type_is_given(self, tmp_path: Path) -> None:
        path = saved(tmp_path, self.REPORT, "one.ncu-rep")
        assert accepts(path, self.REPORT)
        with pytest.raises(InputError) as error:
            open_run([path])
        assert f"ncu --import {path} --csv --page raw > {path.with_suffix('.csv')}" in error.value.hint


class TestEightOps:
    """Eight ops on an H200, exported as both pages."""

    def test_both_pages_agree(self) -> None:
        raw, details = (read_report(FIXTURES / "ncu" / f"{page}.csv.gz") for page in ("raw", "details"))
        assert len(raw.kernels) == len(details.kernels) == 8
        known = 0
        for one, other in zip(raw.kernels, details.kernels, strict=True):
            for field in one.__struct_fields__:
                value, told = getattr(one, field), getattr(other, field)
                if told is None or field == "gmma":
                    continue
                known += 1
                if isinstance(told, float):
                    assert told == pytest.approx(value, rel=6e-3, abs=6e-4), (one.name, field)
                else:
                    assert told == value, (one.name, field)
        assert known > 8 * 12
