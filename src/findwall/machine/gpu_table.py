"""What each GPU can do by its maker's own figures: a row a card, and what its architecture makes of it.

All matrix figures are dense. Makers like to print the 2:4-sparse figure, which is twice as high; where only
that one is printed it was halved. A row states fp16 and fp32; within one architecture the other formats stand
in a fixed ratio to fp16 (`_FORMATS`), and a row overrides what its datasheet says differently. On GeForce
cards the figure is the one with fp32 accumulation, half of the advertised one: it is what training runs at.
fp32 is what a plain fp32 matmul may reach: the vector pipe on NVIDIA, the matrix pipe on AMD.
fp64 is the tensor-core figure where there is one.

Names are compared whole ("NVIDIA L40S" must never be taken for "NVIDIA L4"); other spellings of one card are
listed as aliases.
"""

from __future__ import annotations

import msgspec

from findwall.model.machine import MATH_TYPES
from findwall.units import GIGA, MIB

TERA = 1e12

# Dense rate of each format as a multiple of fp16, by architecture. Absent: the hardware has no such format.
_FORMATS: dict[str, dict[str, float]] = {
    "volta": {},
    "turing": {"int8": 2},
    "turing-geforce": {"int8": 4},
    "ga100": {"bf16": 1, "tf32": 0.5, "int8": 2},
    "ga10x": {"bf16": 1, "tf32": 0.5, "int8": 2},
    "ga10x-geforce": {"bf16": 1, "tf32": 0.5, "int8": 4},
    "ada": {"bf16": 1, "tf32": 0.5, "int8": 2, "fp8": 2},
    "ada-geforce": {"bf16": 1, "tf32": 0.5, "int8": 4, "fp8": 2},
    "hopper": {"bf16": 1, "tf32": 0.5, "int8": 2, "fp8": 2},
    "blackwell": {"bf16": 1, "tf32": 0.5, "int8": 2, "fp8": 2, "fp4": 4},
    "blackwell-pro": {"bf16": 1, "tf32": 0.5, "int8": 2, "fp8": 2, "fp4": 4},
    "blackwell-geforce": {"bf16": 1, "tf32": 0.5, "int8": 4, "fp8": 2, "fp4": 8},
    "cdna2": {"bf16": 1, "int8": 1},
    "cdna3": {"bf16": 1, "tf32": 0.5, "int8": 2, "fp8": 2},
    "cdna4": {"bf16": 1, "int8": 2, "fp8": 2, "fp4": 4},
}

# fp64 units per fp32 unit where the datasheet names no fp64 figure: a fact of the architecture.
_FP64_SHARE = {"turing": 1 / 32, "turing-geforce": 1 / 32, "ga10x": 1 / 64, "ga10x-geforce": 1 / 64}
_FP64_SHARE |= dict.fromkeys(("ada", "ada-geforce", "blackwell-pro", "blackwell-geforce"), 1 / 64)


class Achievable(msgspec.Struct, frozen=True):
    """What share of the datasheet a large, well-shaped job reaches, and who says so."""

    matrix: float  # tensor or matrix cores, every format
    vector: float  # plain fp32 and fp64
    memory: float
    source: str


_DEFAULT = "a cautious default of this family, not measured"
_ACHIEVABLE: dict[str, Achievable] = {
    "volta": Achievable(0.75, 0.85, 0.90, _DEFAULT),
    "turing": Achievable(0.60, 0.75, 0.80, _DEFAULT + " (power-limited cards)"),
    "turing-geforce": Achievable(0.80, 0.80, 0.85, _DEFAULT),
    "ga100": Achievable(
        0.87, 0.85, 0.87, "bf16 0.87 of spec as published for A100; the rest cautious defaults"
    ),
    "ga10x": Achievable(0.75, 0.80, 0.85, _DEFAULT),
    "ga10x-geforce": Achievable(0.85, 0.80, 0.88, _DEFAULT),
    "ada": Achievable(0.70, 0.75, 0.85, _DEFAULT),
    "ada-geforce": Achievable(0.85, 0.75, 0.88, _DEFAULT),
    "hopper": Achievable(
        0.80, 0.77, 0.90, "8192^3 bf16 and a large copy on an H200: 790 of 989 TFLOP/s, 4.3 of 4.8 TB/s"
    ),
    "blackwell": Achievable(
        0.78, 0.77, 0.88, "bf16 0.78 of spec as published for B200; the rest cautious defaults"
    ),
    "blackwell-pro": Achievable(0.75, 0.75, 0.85, _DEFAULT),
    "blackwell-geforce": Achievable(0.85, 0.75, 0.88, _DEFAULT),
    "cdna2": Achievable(0.70, 0.70, 0.80, _DEFAULT),
    "cdna3": Achievable(
        0.51, 0.60, 0.75, "bf16 0.51 of spec as published for MI300X; the rest cautious defaults"
    ),
    "cdna4": Achievable(0.55, 0.60, 0.75, _DEFAULT),
}


class Gpu(msgspec.Struct, frozen=True):
    """One row: a device as the driver names it. FLOP/s and bytes/s; a missing format has no hardware."""

    names: tuple[str, ...]  # exact; the first is the usual one
    arch: str
    sm_count: int  # streaming multiprocessors, or compute units
    boost_mhz: int
    flops: dict[str, float]
    bandwidth: float
    bus_bits: int
    pin_gbps: float  # memory data rate a pin; with the bus it must give the bandwidth
    l2_bytes: int
    cache_bytes: int  # the last cache before memory: the L2, or AMD's Infinity Cache
    source: str

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def achievable(self) -> Achievable:
        return _ACHIEVABLE[self.arch]


def _gpu(
    names: str,
    arch: str,
    cores: tuple[int, int],
    memory: tuple[float, int, float],
    l2_mib: float,
    source: str,
    last_cache_mib: float | None = None,
    **tflops: float,
) -> Gpu:
    """names: "a | b"; cores: count, boost MHz; memory: GB/s, bus bits, Gbit/s a pin; the rest TFLOP/s."""
    figures = dict(tflops)
    if "fp16" in figures:
        for kind, ratio in _FORMATS[arch].items():
            figures.setdefault(kind, figures["fp16"] * ratio)
    if "fp32" in figures and arch in _FP64_SHARE:
        figures.setdefault("fp64", figures["fp32"] * _FP64_SHARE[arch])
    return Gpu(
        names=tuple(names.split(" | ")),
        arch=arch,
        sm_count=cores[0],
        boost_mhz=cores[1],
        flops={kind: figures[kind] * TERA for kind in MATH_TYPES if kind in figures},
        bandwidth=memory[0] * GIGA,
        bus_bits=memory[1],
        pin_gbps=memory[2],
        l2_bytes=int(l2_mib * MIB),
        cache_bytes=int((last_cache_mib or l2_mib) * MIB),
        source=source,
    )


_V100 = "NVIDIA V100 datasheet and Volta whitepaper, dense"
_GA100 = "NVIDIA A100 datasheet and GA100 whitepaper, dense"
_GA102 = "NVIDIA GA102 whitepaper, dense, fp32 accumulation"
_ADA = "NVIDIA Ada whitepaper, dense, fp32 accumulation"
_GB202 = "NVIDIA RTX Blackwell whitepaper, dense, fp32 accumulation"
_RTX_A = "NVIDIA RTX A-series datasheet, printed sparse figure halved"
_RTX_PRO = "NVIDIA RTX PRO Blackwell whitepaper, dense"
_H100 = "NVIDIA H100 datasheet and Hopper whitepaper, dense (printed sparse figure halved)"
_H200 = "NVIDIA H200 datasheet, dense (printed sparse figure halved); L2 as the driver reports it"
_B200 = "NVIDIA Blackwell datasheet (HGX B200, GB200 NVL72), dense (printed sparse figure halved)"
_CDNA2 = "AMD MI200 datasheet, dense, one die: torch sees each die as a device"
_CDNA3 = "AMD MI300 datasheet, dense; cache from the CDNA 3 whitepaper"
_CDNA4 = "AMD MI350 datasheet, dense; cache from the CDNA 4 whitepaper"

_ROWS = (
    # Volta and Turing: no bf16, no TF32.
    _gpu("Tesla V100-SXM2-16GB | Tesla V100-SXM2-32GB | Tesla V100-DGXS-16GB | Tesla V100-DGXS-32GB", "volta",
         (80, 1530), (900, 4096, 1.752), 6, _V100, fp16=125, fp32=15.7, fp64=7.8),
    _gpu("Tesla V100-SXM3-32GB | Tesla V100-SXM3-32GB-H", "volta", (80, 1597), (981, 4096, 1.916), 6,
         _V100 + " at the SXM3 board's clocks", fp16=130, fp32=16.4, fp64=8.2),
    _gpu("Tesla V100-PCIE-16GB | Tesla V100-PCIE-32GB", "volta", (80, 1380), (900, 4096, 1.752), 6, _V100,
         fp16=112, fp32=14.0, fp64=7.0),
    _gpu("Tesla V100S-PCIE-32GB", "volta", (80, 1597), (1134, 4096, 2.214), 6, _V100,
         fp16=130, fp32=16.4, fp64=8.2),
    _gpu("Tesla T4", "turing", (40, 1590), (320, 256, 10), 4, "NVIDIA T4 datasheet, dense",
         fp16=65, fp32=8.1),
    _gpu("Quadro RTX 6000 | Quadro RTX 8000", "turing", (72, 1770), (672, 384, 14), 6,
         "NVIDIA Turing whitepaper, dense", fp16=130.5, fp32=16.3),
    _gpu("NVIDIA GeForce RTX 2080 Ti | GeForce RTX 2080 Ti", "turing-geforce", (68, 1545),
         (616, 352, 14), 5.5, "NVIDIA Turing whitepaper, dense, fp32 accumulation", fp16=53.8, fp32=13.4),
    # Ampere, data centre.
    _gpu("NVIDIA A100-SXM4-40GB | A100-SXM4-40GB | NVIDIA A100-PG509-200 | A100-PG509-200"
         " | NVIDIA A100-PCIE-40GB | A100-PCIE-40GB", "ga100", (108, 1410), (1555, 5120, 2.43), 40,
         _GA100, fp16=312, fp32=19.5, fp64=19.5),
    _gpu("NVIDIA A100-SXM4-80GB | A100-SXM4-80GB | A100-SXM-80GB | NVIDIA PG509-210"
         " | NVIDIA A800-SXM4-80GB", "ga100", (108, 1410), (2039, 5120, 3.186), 40,
         _GA100, fp16=312, fp32=19.5, fp64=19.5),
    _gpu("NVIDIA A100 80GB PCIe | NVIDIA A800 80GB PCIe", "ga100", (108, 1410), (1935, 5120, 3.024), 40,
         _GA100, fp16=312, fp32=19.5, fp64=19.5),
    _gpu("NVIDIA A30", "ga100", (56, 1440), (933, 3072, 2.43), 24, "NVIDIA A30 datasheet, dense",
         fp16=165, fp32=10.3, fp64=10.3),
    _gpu("NVIDIA A10", "ga10x", (72, 1695), (600, 384, 12.5), 6, "NVIDIA A10 datasheet, dense",
         fp16=125, fp32=31.2),
    _gpu("NVIDIA A10G", "ga10x-geforce", (80, 1710), (600, 384, 12.5), 6,
         "NVIDIA A10G datasheet (AWS), dense: half the tensor rate of an A10", fp16=70, fp32=35.0),
    _gpu("NVIDIA A40", "ga10x", (84, 1740), (696, 384, 14.5), 6, "NVIDIA A40 datasheet, dense",
         fp16=149.7, fp32=37.4),
    # Hopper.
    _gpu("NVIDIA H100 80GB HBM3 | NVIDIA H100 SXM5 80GB", "hopper", (132, 1980), (3350, 5120, 5.234), 50,
         _H100, fp16=989.4, fp32=66.9, fp64=66.9),
    _gpu("NVIDIA H100 PCIe", "hopper", (114, 1755), (2039, 5120, 3.186), 50, _H100,
         fp16=756, fp32=51.2, fp64=51.2),
    _gpu("NVIDIA H100 NVL", "hopper", (132, 1785), (3900, 6144, 5.1), 60, _H100,
         fp16=835.5, fp32=60, fp64=60),
    _gpu("NVIDIA H800", "hopper", (132, 1980), (3350, 5120, 5.234), 50, _H100 + "; fp64 cut to 1 TFLOP/s",
         fp16=989.4, fp32=66.9, fp64=1),
    _gpu("NVIDIA H800 PCIe", "hopper", (114, 1755), (2039, 5120, 3.186), 50,
         _H100 + "; fp64 cut to 0.8 TFLOP/s", fp16=756, fp32=51.2, fp64=0.8),
    _gpu("NVIDIA H200", "hopper", (132, 1980), (4800, 6144, 6.25), 60, _H200,
         fp16=989.4, fp32=66.9, fp64=66.9),
    _gpu("NVIDIA H200 NVL", "hopper", (132, 1785), (4800, 6144, 6.25), 60, _H200,
         fp16=835.5, fp32=60, fp64=60),
    _gpu("NVIDIA GH200 480GB", "hopper", (132, 1980), (4000, 6144, 5.21), 60, "NVIDIA GH200 datasheet, dense",
         fp16=989.4, fp32=66.9, fp64=66.9),
    _gpu("NVIDIA GH200 144G HBM3e", "hopper", (132, 1980), (4900, 6144, 6.38), 60,
         "NVIDIA GH200 datasheet, dense", fp16=989.4, fp32=66.9, fp64=66.9),
    _gpu("NVIDIA H20", "hopper", (78, 1980), (4000, 6144, 5.21), 60,
         "NVIDIA H20 datasheet, dense (tensor rate cut)", fp16=148, fp32=44, fp64=1),
    # Blackwell, data centre.
    _gpu("NVIDIA B200", "blackwell", (148, 1965), (8000, 8192, 7.8125), 126, _B200,
         fp16=2250, fp32=75, fp64=37),
    _gpu("NVIDIA GB200", "blackwell", (152, 2062), (8000, 8192, 7.8125), 126, _B200,
         fp16=2500, fp32=80, fp64=40),
    # Ada.
    _gpu("NVIDIA L4", "ada", (58, 2040), (300, 192, 12.5), 48,
         "NVIDIA L4 datasheet, printed sparse figure halved", fp16=121, fp32=30.3),
    _gpu("NVIDIA L40", "ada", (142, 2490), (864, 384, 18), 96, "NVIDIA L40 datasheet, dense",
         fp16=181.05, fp32=90.5),
    _gpu("NVIDIA L40S", "ada", (142, 2520), (864, 384, 18), 96, "NVIDIA L40S datasheet, dense",
         fp16=362.05, fp32=91.6),
    _gpu("NVIDIA L20", "ada", (92, 2520), (864, 384, 18), 96, "NVIDIA L20 datasheet, dense",
         fp16=119.5, fp32=59.8),
    _gpu("NVIDIA RTX 6000 Ada Generation", "ada", (142, 2505), (960, 384, 20), 96,
         "NVIDIA RTX 6000 Ada datasheet, printed sparse fp8 figure (1457) quartered", fp16=364.2, fp32=91.1),
    # RTX A-series.
    _gpu("NVIDIA RTX A4000 | RTX A4000", "ga10x", (48, 1560), (448, 256, 14), 4, _RTX_A,
         fp16=76.7, fp32=19.2),
    _gpu("NVIDIA RTX A5000 | RTX A5000", "ga10x", (64, 1695), (768, 384, 16), 6, _RTX_A,
         fp16=111.1, fp32=27.8),
    _gpu("NVIDIA RTX A6000 | RTX A6000", "ga10x", (84, 1800), (768, 384, 16), 6, _RTX_A,
         fp16=154.8, fp32=38.7),
    # RTX PRO Blackwell.
    _gpu("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "blackwell-pro", (188, 2617),
         (1792, 512, 28), 128, _RTX_PRO, fp16=503.8, fp32=126.0),
    _gpu("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "blackwell-pro", (188, 2280),
         (1792, 512, 28), 128, _RTX_PRO, fp16=438.9, fp32=109.7),
    _gpu("NVIDIA RTX PRO 6000 Blackwell Server Edition", "blackwell-pro", (188, 2493), (1597, 512, 25), 128,
         "NVIDIA RTX PRO 6000 Server datasheet: 120 TFLOP/s fp32; tensor rate 4x that, as siblings",
         fp16=480, fp32=120),
    # GeForce RTX 30. The 12 GB 3080 and the 8 GB 3060 carry the same names as the cards listed.
    _gpu("NVIDIA GeForce RTX 3060 | GeForce RTX 3060", "ga10x-geforce", (28, 1777), (360, 192, 15), 3,
         _GA102, fp16=25.5, fp32=12.7),
    _gpu("NVIDIA GeForce RTX 3060 Ti | GeForce RTX 3060 Ti", "ga10x-geforce", (38, 1665), (448, 256, 14), 4,
         _GA102, fp16=32.4, fp32=16.2),
    _gpu("NVIDIA GeForce RTX 3070 | GeForce RTX 3070", "ga10x-geforce", (46, 1725), (448, 256, 14), 4,
         _GA102, fp16=40.6, fp32=20.3),
    _gpu("NVIDIA GeForce RTX 3070 Ti | GeForce RTX 3070 Ti", "ga10x-geforce", (48, 1770), (608, 256, 19), 4,
         _GA102, fp16=43.5, fp32=21.7),
    _gpu("NVIDIA GeForce RTX 3080 | GeForce RTX 3080", "ga10x-geforce", (68, 1710), (760, 320, 19), 5,
         _GA102, fp16=59.5, fp32=29.8),
    _gpu("NVIDIA GeForce RTX 3080 Ti | GeForce RTX 3080 Ti", "ga10x-geforce", (80, 1665), (912, 384, 19), 6,
         _GA102, fp16=68.2, fp32=34.1),
    _gpu("NVIDIA GeForce RTX 3090 | GeForce RTX 3090", "ga10x-geforce", (82, 1695), (936, 384, 19.5), 6,
         _GA102, fp16=71, fp32=35.6),
    _gpu("NVIDIA GeForce RTX 3090 Ti", "ga10x-geforce", (84, 1860), (1008, 384, 21), 6, _GA102,
         fp16=80, fp32=40),
    # GeForce RTX 40.
    _gpu("NVIDIA GeForce RTX 4060", "ada-geforce", (24, 2460), (272, 128, 17), 24, _ADA,
         fp16=30.2, fp32=15.1),
    _gpu("NVIDIA GeForce RTX 4060 Ti", "ada-geforce", (34, 2535), (288, 128, 18), 32, _ADA,
         fp16=44.1, fp32=22.1),
    _gpu("NVIDIA GeForce RTX 4070", "ada-geforce", (46, 2475), (504, 192, 21), 36, _ADA,
         fp16=58.3, fp32=29.1),
    _gpu("NVIDIA GeForce RTX 4070 SUPER", "ada-geforce", (56, 2475), (504, 192, 21), 48, _ADA,
         fp16=71, fp32=35.5),
    _gpu("NVIDIA GeForce RTX 4070 Ti", "ada-geforce", (60, 2610), (504, 192, 21), 48, _ADA,
         fp16=80.2, fp32=40.1),
    _gpu("NVIDIA GeForce RTX 4070 Ti SUPER", "ada-geforce", (66, 2610), (672, 256, 21), 48, _ADA,
         fp16=88.2, fp32=44.1),
    _gpu("NVIDIA GeForce RTX 4080", "ada-geforce", (76, 2505), (716.8, 256, 22.4), 64, _ADA,
         fp16=97.5, fp32=48.7),
    _gpu("NVIDIA GeForce RTX 4080 SUPER", "ada-geforce", (80, 2550), (736, 256, 23), 64, _ADA,
         fp16=104.4, fp32=52.2),
    _gpu("NVIDIA GeForce RTX 4090", "ada-geforce", (128, 2520), (1008, 384, 21), 72, _ADA,
         fp16=165.2, fp32=82.6),
    _gpu("NVIDIA GeForce RTX 4090 D", "ada-geforce", (114, 2520), (1008, 384, 21), 72, _ADA,
         fp16=147.1, fp32=73.5),
    # GeForce RTX 50.
    _gpu("NVIDIA GeForce RTX 5070", "blackwell-geforce", (48, 2512), (672, 192, 28), 48, _GB202,
         fp16=61.7, fp32=30.9),
    _gpu("NVIDIA GeForce RTX 5070 Ti", "blackwell-geforce", (70, 2452), (896, 256, 28), 48, _GB202,
         fp16=87.9, fp32=43.9),
    _gpu("NVIDIA GeForce RTX 5080", "blackwell-geforce", (84, 2617), (960, 256, 30), 64, _GB202,
         fp16=112.6, fp32=56.3),
    _gpu("NVIDIA GeForce RTX 5090", "blackwell-geforce", (170, 2407), (1792, 512, 28), 96, _GB202,
         fp16=209.5, fp32=104.8),
    # AMD Instinct.
    _gpu("AMD Instinct MI210", "cdna2", (104, 1700), (1638.4, 4096, 3.2), 8, _CDNA2,
         fp16=181, fp32=45.3, fp64=45.3),
    _gpu("AMD Instinct MI250", "cdna2", (104, 1700), (1638.4, 4096, 3.2), 8, _CDNA2,
         fp16=181, fp32=45.3, fp64=45.3),
    _gpu("AMD Instinct MI250X | AMD Instinct MI250X/MI250", "cdna2", (110, 1700), (1638.4, 4096, 3.2), 8,
         _CDNA2, fp16=191.5, fp32=47.9, fp64=47.9),
    _gpu("AMD Instinct MI300X | AMD Instinct MI300X VF | AMD Instinct MI300X OAM | AMD Instinct MI300X HF",
         "cdna3", (304, 2100), (5300, 8192, 5.2), 32, _CDNA3, 256, fp16=1307.4, fp32=163.4, fp64=163.4),
    _gpu("AMD Instinct MI300A", "cdna3", (228, 2100), (5300, 8192, 5.2), 24, _CDNA3, 256,
         fp16=980.6, fp32=122.6, fp64=122.6),
    _gpu("AMD Instinct MI308X | AMD Instinct MI308X OAM | AMD Instinct MI308X VF", "cdna3", (80, 2100),
         (5300, 8192, 5.2), 32,
         "memory as MI300X; AMD prints no matrix peak for this card, so it has none here", 256),
    _gpu("AMD Instinct MI325X | AMD Instinct MI325X VF | AMD Instinct MI325X OAM", "cdna3", (304, 2100),
         (6000, 8192, 6.0), 32, _CDNA3, 256, fp16=1307.4, fp32=163.4, fp64=163.4),
    _gpu("AMD Instinct MI350X | AMD Instinct MI350X VF | AMD Instinct MI350X OAM", "cdna4", (256, 2200),
         (8000, 8192, 8.0), 32, _CDNA4, 256, fp16=2306.9, fp32=144.2, fp64=72.1),
    _gpu("AMD Instinct MI355X | AMD Instinct MI355X VF | AMD Instinct MI355X OAM", "cdna4", (256, 2400),
         (8000, 8192, 8.0), 32, _CDNA4, 256, fp16=2516.6, fp32=157.3, fp64=78.6),
)  # fmt: skip

GPUS: dict[str, Gpu] = {name: row for row in _ROWS for name in row.names}

# Words in the names of devices that are not in the table.
_MAKERS = {"amd": ("AMD", "Instinct", "Radeon"), "nvidia": ("NVIDIA", "GeForce", "Tesla", "Quadro")}


def lookup(name: str) -> Gpu | None:
    """The row of the device with exactly this name, or None."""
    return GPUS.get(name.strip())


def vendor(name: str) -> str:
    """Who makes a device of this name: "nvidia", "amd", or empty where the name does not say."""
    gpu = lookup(name)
    if gpu is not None:
        return "amd" if gpu.arch.startswith("cdna") else "nvidia"
    for maker, words in _MAKERS.items():
        if any(word in name for word in words):
            return maker
    return ""
