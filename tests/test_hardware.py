"""The table of GPUs: every row against literal figures, and against what its architecture implies."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from findwall.errors import InputError
from findwall.machine.gpu_table import GPUS, Gpu, lookup
from findwall.machine.hardware import load_ceilings, table_ceilings
from soak.hang import hang_guard

# name: fp16, bf16, tf32, fp8, int8, fp32 (TFLOP/s, dense), GB/s, SMs; typed from the datasheets, not from the
# table. None: the hardware has no such format.
N = None
DATASHEET: dict[str, tuple[Any, ...]] = {
    "Tesla V100-SXM2-16GB": (125, N, N, N, N, 15.7, 900, 80),
    "Tesla V100-SXM2-32GB": (125, N, N, N, N, 15.7, 900, 80),
    "Tesla V100-DGXS-32GB": (125, N, N, N, N, 15.7, 900, 80),
    "Tesla V100-SXM3-32GB": (130, N, N, N, N, 16.4, 981, 80),
    "Tesla V100-PCIE-16GB": (112, N, N, N, N, 14, 900, 80),
    "Tesla V100S-PCIE-32GB": (130, N, N, N, N, 16.4, 1134, 80),
    "Tesla T4": (65, N, N, N, 130, 8.1, 320, 40),
    "Quadro RTX 6000": (130.5, N, N, N, 261, 16.3, 672, 72),
    "NVIDIA GeForce RTX 2080 Ti": (53.8, N, N, N, 215.2, 13.4, 616, 68),
    "NVIDIA A100-SXM4-40GB": (312, 312, 156, N, 624, 19.5, 1555, 108),
    "NVIDIA A100-PG509-200": (312, 312, 156, N, 624, 19.5, 1555, 108),
    "NVIDIA A100-PCIE-40GB": (312, 312, 156, N, 624, 19.5, 1555, 108),
    "NVIDIA A100-SXM4-80GB": (312, 312, 156, N, 624, 19.5, 2039, 108),
    "NVIDIA A100 80GB PCIe": (312, 312, 156, N, 624, 19.5, 1935, 108),
    "NVIDIA A30": (165, 165, 82.5, N, 330, 10.3, 933, 56),
    "NVIDIA A10": (125, 125, 62.5, N, 250, 31.2, 600, 72),
    "NVIDIA A10G": (70, 70, 35, N, 280, 35, 600, 80),
    "NVIDIA A40": (149.7, 149.7, 74.85, N, 299.4, 37.4, 696, 84),
    "NVIDIA H100 80GB HBM3": (989.4, 989.4, 494.7, 1978.8, 1978.8, 66.9, 3350, 132),
    "NVIDIA H100 PCIe": (756, 756, 378, 1512, 1512, 51.2, 2039, 114),
    "NVIDIA H100 NVL": (835.5, 835.5, 417.75, 1671, 1671, 60, 3900, 132),
    "NVIDIA H800": (989.4, 989.4, 494.7, 1978.8, 1978.8, 66.9, 3350, 132),
    "NVIDIA H800 PCIe": (756, 756, 378, 1512, 1512, 51.2, 2039, 114),
    "NVIDIA H200": (989.4, 989.4, 494.7, 1978.8, 1978.8, 66.9, 4800, 132),
    "NVIDIA H200 NVL": (835.5, 835.5, 417.75, 1671, 1671, 60, 4800, 132),
    "NVIDIA GH200 480GB": (989.4, 989.4, 494.7, 1978.8, 1978.8, 66.9, 4000, 132),
    "NVIDIA GH200 144G HBM3e": (989.4, 989.4, 494.7, 1978.8, 1978.8, 66.9, 4900, 132),
    "NVIDIA H20": (148, 148, 74, 296, 296, 44, 4000, 78),
    "NVIDIA B200": (2250, 2250, 1125, 4500, 4500, 75, 8000, 148),
    "NVIDIA GB200": (2500, 2500, 1250, 5000, 5000, 80, 8000, 152),
    "NVIDIA L4": (121, 121, 60.5, 242, 242, 30.3, 300, 58),
    "NVIDIA L40": (181.05, 181.05, 90.525, 362.1, 362.1, 90.5, 864, 142),
    "NVIDIA L40S": (362.05, 362.05, 181.025, 724.1, 724.1, 91.6, 864, 142),
    "NVIDIA L20": (119.5, 119.5, 59.75, 239, 239, 59.8, 864, 92),
    "NVIDIA RTX 6000 Ada Generation": (364.2, 364.2, 182.1, 728.4, 728.4, 91.1, 960, 142),
    "NVIDIA RTX A4000": (76.7, 76.7, 38.35, N, 153.4, 19.2, 448, 48),
    "NVIDIA RTX A5000": (111.1, 111.1, 55.55, N, 222.2, 27.8, 768, 64),
    "NVIDIA RTX A6000": (154.8, 154.8, 77.4, N, 309.6, 38.7, 768, 84),
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": (
        503.8,
        503.8,
        251.9,
        1007.6,
        1007.6,
        126,
        1792,
        188,
    ),
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": (
        438.9,
        438.9,
        219.45,
        877.8,
        877.8,
        109.7,
        1792,
        188,
    ),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": (480, 480, 240, 960, 960, 120, 1597, 188),
    "NVIDIA GeForce RTX 3060": (25.5, 25.5, 12.75, N, 102, 12.7, 360, 28),
    "NVIDIA GeForce RTX 3060 Ti": (32.4, 32.4, 16.2, N, 129.6, 16.2, 448, 38),
    "NVIDIA GeForce RTX 3070": (40.6, 40.6, 20.3, N, 162.4, 20.3, 448, 46),
    "NVIDIA GeForce RTX 3070 Ti": (43.5, 43.5, 21.75, N, 174, 21.7, 608, 48),
    "NVIDIA GeForce RTX 3080": (59.5, 59.5, 29.75, N, 238, 29.8, 760, 68),
    "NVIDIA GeForce RTX 3080 Ti": (68.2, 68.2, 34.1, N, 272.8, 34.1, 912, 80),
    "NVIDIA GeForce RTX 3090": (71, 71, 35.5, N, 284, 35.6, 936, 82),
    "NVIDIA GeForce RTX 3090 Ti": (80, 80, 40, N, 320, 40, 1008, 84),
    "NVIDIA GeForce RTX 4060": (30.2, 30.2, 15.1, 60.4, 120.8, 15.1, 272, 24),
    "NVIDIA GeForce RTX 4060 Ti": (44.1, 44.1, 22.05, 88.2, 176.4, 22.1, 288, 34),
    "NVIDIA GeForce RTX 4070": (58.3, 58.3, 29.15, 116.6, 233.2, 29.1, 504, 46),
    "NVIDIA GeForce RTX 4070 SUPER": (71, 71, 35.5, 142, 284, 35.5, 504, 56),
    "NVIDIA GeForce RTX 4070 Ti": (80.2, 80.2, 40.1, 160.4, 320.8, 40.1, 504, 60),
    "NVIDIA GeForce RTX 4070 Ti SUPER": (88.2, 88.2, 44.1, 176.4, 352.8, 44.1, 672, 66),
    "NVIDIA GeForce RTX 4080": (97.5, 97.5, 48.75, 195, 390, 48.7, 716.8, 76),
    "NVIDIA GeForce RTX 4080 SUPER": (104.4, 104.4, 52.2, 208.8, 417.6, 52.2, 736, 80),
    "NVIDIA GeForce RTX 4090": (165.2, 165.2, 82.6, 330.4, 660.8, 82.6, 1008, 128),
    "NVIDIA GeForce RTX 4090 D": (147.1, 147.1, 73.55, 294.2, 588.4, 73.5, 1008, 114),
    "NVIDIA GeForce RTX 5070": (61.7, 61.7, 30.85, 123.4, 246.8, 30.9, 672, 48),
    "NVIDIA GeForce RTX 5070 Ti": (87.9, 87.9, 43.95, 175.8, 351.6, 43.9, 896, 70),
    "NVIDIA GeForce RTX 5080": (112.6, 112.6, 56.3, 225.2, 450.4, 56.3, 960, 84),
    "NVIDIA GeForce RTX 5090": (209.5, 209.5, 104.75, 419, 838, 104.8, 1792, 170),
    "AMD Instinct MI210": (181, 181, N, N, 181, 45.3, 1638.4, 104),
    "AMD Instinct MI250": (181, 181, N, N, 181, 45.3, 1638.4, 104),
    "AMD Instinct MI250X": (191.5, 191.5, N, N, 191.5, 47.9, 1638.4, 110),
    "AMD Instinct MI300X": (1307.4, 1307.4, 653.7, 2614.8, 2614.8, 163.4, 5300, 304),
    "AMD Instinct MI300X VF": (1307.4, 1307.4, 653.7, 2614.8, 2614.8, 163.4, 5300, 304),
    "AMD Instinct MI300X OAM": (1307.4, 1307.4, 653.7, 2614.8, 2614.8, 163.4, 5300, 304),
    "AMD Instinct MI300A": (980.6, 980.6, 490.3, 1961.2, 1961.2, 122.6, 5300, 228),
    "AMD Instinct MI308X": (N, N, N, N, N, N, 5300, 80),
    "AMD Instinct MI325X": (1307.4, 1307.4, 653.7, 2614.8, 2614.8, 163.4, 6000, 304),
    "AMD Instinct MI350X": (2306.9, 2306.9, N, 4613.8, 4613.8, 144.2, 8000, 256),
    "AMD Instinct MI355X": (2516.6, 2516.6, N, 5033.2, 5033.2, 157.3, 8000, 256),
}

# Dense fp16 FLOPs a core (SM or CU) and clock, and fp32 FLOPs, by architecture.
PER_CLOCK = {
    "volta": (1024, 128),
    "turing": (1024, 128),
    "turing-geforce": (512, 128),
    "ga100": (2048, 128),
    "ga10x": (1024, 256),
    "ga10x-geforce": (512, 256),
    "ada": (1024, 256),
    "ada-geforce": (512, 256),
    "hopper": (4096, 256),
    "blackwell": (8192, 256),
    "blackwell-pro": (1024, 256),
    "blackwell-geforce": (512, 256),
    "cdna2": (1024, 256),
    "cdna3": (2048, 256),
    "cdna4": (4096, 256),
}
# Cards whose tensor rate the maker cut on purpose: L40 and L20 to a half, H20 for export.
CUT = {"NVIDIA H20", "NVIDIA L40", "NVIDIA L20"}

ROWS = sorted({id(gpu): gpu for gpu in GPUS.values()}.values(), key=lambda gpu: gpu.name)
by_row = pytest.mark.parametrize("gpu", ROWS, ids=lambda gpu: gpu.name)


@pytest.mark.parametrize("name", DATASHEET)
def test_the_row_says_what_the_datasheet_says(name: str) -> None:
    gpu = lookup(name)
    assert gpu is not None
    *flops, bandwidth, cores = DATASHEET[name]
    for kind, expected in zip(("fp16", "bf16", "tf32", "fp8", "int8", "fp32"), flops, strict=True):
        found = gpu.flops.get(kind)
        assert found == (expected if expected is None else pytest.approx(expected * 1e12, rel=1e-4)), kind
    assert gpu.bandwidth == pytest.approx(bandwidth * 1e9)
    assert gpu.sm_count == cores


@by_row
def test_every_row_has_its_literal_figures_here(gpu: Gpu) -> None:
    assert any(name in DATASHEET for name in gpu.names)


@by_row
def test_bandwidth_is_bus_width_times_data_rate(gpu: Gpu) -> None:
    assert gpu.bus_bits * gpu.pin_gbps / 8 * 1e9 == pytest.approx(gpu.bandwidth, rel=0.03)


@by_row
def test_peaks_are_dense_what_the_cores_do_a_clock(gpu: Gpu) -> None:
    if not gpu.flops:
        pytest.skip("no figures are printed for this card")
    tensor, vector = PER_CLOCK[gpu.arch]
    clock = gpu.sm_count * gpu.boost_mhz * 1e6
    assert gpu.flops["fp32"] == pytest.approx(vector * clock, rel=0.12)
    share = gpu.flops["fp16"] / (tensor * clock)
    # A sparse figure would stand at 2; a tensor clock below boost brings a row down to 0.85.
    assert share < 0.6 if gpu.name in CUT else 0.85 < share < 1.03


@by_row
def test_formats_stand_in_their_ratios(gpu: Gpu) -> None:
    fp16 = gpu.flops.get("fp16")
    if fp16 is None:
        pytest.skip("no figures are printed for this card")
    assert gpu.flops.get("bf16", fp16) == fp16
    assert gpu.flops.get("fp8", 2 * fp16) == pytest.approx(2 * fp16)
    assert gpu.flops.get("tf32", fp16 / 2) == pytest.approx(fp16 / 2)
    assert gpu.flops["fp64"] <= gpu.flops["fp32"]


@by_row
def test_every_row_has_a_source_a_cache_and_a_sane_achievable_share(gpu: Gpu) -> None:
    assert len(gpu.source) > 20
    assert 3 * 2**20 <= gpu.l2_bytes <= gpu.cache_bytes <= 256 * 2**20
    share = gpu.achievable
    assert share.source
    assert all(0.4 < part < 0.95 for part in (share.matrix, share.vector, share.memory))


def test_old_cards_have_no_bf16_and_no_tf32() -> None:
    for name in ("Tesla V100-SXM2-32GB", "Tesla T4"):
        assert not {"bf16", "tf32", "fp8"} & set(table_ceilings(name).spec_flops)


def test_no_name_stands_in_two_rows() -> None:
    names = [name for gpu in ROWS for name in gpu.names]
    assert len(names) == len(set(names)) == len(GPUS)


@pytest.mark.parametrize(
    "name",
    ["", "NVIDIA", "H200", "nvidia h200", "NVIDIA H200 SXM", "NVIDIA L4S", "NVIDIA L400", "NVIDIA A100",
     "NVIDIA GeForce RTX 4090 Laptop GPU", "AMD Radeon Graphics", "NVIDIA H100",
     "NVIDIA A100-SXM4-40GB MIG 1g.5gb"],
)  # fmt: skip
def test_names_are_matched_whole(name: str) -> None:
    assert lookup(name) is None
    ceilings = table_ceilings(name)
    assert not ceilings.known
    assert (ceilings.source, ceilings.device, ceilings.bandwidth) == ("unknown", name, None)


def test_l40s_is_not_l4_nor_l40() -> None:
    rows = [lookup(name) for name in ("NVIDIA L4", "NVIDIA L40", "NVIDIA L40S")]
    assert len({row.name for row in rows if row}) == 3


def test_table_ceilings_carry_spec_and_achievable_beside_each_other() -> None:
    h200 = table_ceilings("NVIDIA H200")
    assert h200.known
    assert h200.source == "table"
    assert h200.flops["bf16"] == pytest.approx(790e12, rel=0.01)
    assert h200.spec_flops["bf16"] == pytest.approx(989.4e12)
    assert h200.bandwidth == pytest.approx(4.3e12, rel=0.01)
    assert h200.l2_bytes == 60 * 2**20
    assert "dense" in h200.origin


def test_a_card_without_published_peaks_gives_no_roofline() -> None:
    ceilings = table_ceilings("AMD Instinct MI308X")
    assert not ceilings.known
    assert ceilings.spec_bandwidth == 5.3e12


@pytest.mark.parametrize("trace", ["zoo/llama_1b.json.gz", "traces/v100_resnet50_workers0.json.gz",
                                   "traces/a100_cnn_ddp_rank0_of_2.json.gz",
                                   "traces/b200_vllm_tp8_rank0.json.gz",
                                   "traces/mi300x_compiled_triton.json.gz"])  # fmt: skip
def test_devices_of_real_traces_are_known(shared: Path, trace: str) -> None:
    import gzip
    import re

    with gzip.open(shared / trace, "rt", errors="replace") as file:
        names = re.findall(r'"name": "([^"]+)",\s*"totalGlobalMem"', file.read(4000))
    assert names
    assert all(table_ceilings(name).known for name in names)


def write(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "ceilings.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_measured_ceilings_are_loaded_beside_the_spec(tmp_path: Path) -> None:
    given = {"device": "NVIDIA H200", "source": "measured", "flops": {"bf16": 7.6e14}, "bandwidth": 4.2e12}
    for content in (given, {"schema": "x", "ceilings": given, "rates": []}):
        loaded = load_ceilings(write(tmp_path, content))
        assert loaded.source == "measured"
        assert loaded.flops == {"bf16": 7.6e14}
        assert loaded.spec_flops["bf16"] == pytest.approx(989.4e12)
        assert loaded.spec_bandwidth == 4.8e12


def test_ceilings_of_an_unknown_gpu_need_no_spec(tmp_path: Path) -> None:
    loaded = load_ceilings(
        write(tmp_path, {"device": "Future 1", "flops": {"fp16": 1e18}, "bandwidth": 1e14})
    )
    assert loaded.known
    assert loaded.spec_bandwidth is None


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "3", "null", '"x"', "{}", '{"device": "NVIDIA H200"}', '{"flops": {"bf16": NaN}}',
        {"flops": {"bf16": -1}, "bandwidth": 1e12},
        {"flops": {"bf16": 0}, "bandwidth": 1e12},
        {"flops": {"bf17": 1e12}, "bandwidth": 1e12},
        {"flops": {"bf16": "fast"}},
        {"flops": [1, 2]},
        {"flops": {"bf16": 1e12}, "bandwith": 1e12},
        {"flops": {"bf16": 1e12}, "bandwidth": 1e12, "launch_s": -1e-6},
        {"device": "NVIDIA H200", "flops": {"bf16": 1979e12}, "bandwidth": 4.3e12},
        {"device": "NVIDIA H200", "flops": {"bf16": 790e12}, "bandwidth": 43e12},
        {"ceilings": {"flops": {"bf16": -1}}},
    ],
)  # fmt: skip
def test_nonsense_is_refused_in_one_line(tmp_path: Path, content: object) -> None:
    with pytest.raises(InputError) as caught:
        load_ceilings(write(tmp_path, content))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Cannot read"):
        load_ceilings(tmp_path / "absent.json")
    with pytest.raises(InputError):
        load_ceilings(tmp_path)


def test_figures_are_finite() -> None:
    assert all(math.isfinite(peak) and peak > 0 for gpu in ROWS for peak in gpu.flops.values())


@pytest.mark.parametrize("kind", ["device", "pipe", "folder", "brackets"])
def test_ceilings_that_never_end_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "ceilings.json"
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_text("[" * 100_000)
    with hang_guard(), pytest.raises(InputError) as refused:
        load_ceilings(path)
    assert refused.value.hint
