"""The walls and their causes: the only list of their names. Each cause has a file under `causes/WALL/`."""

from __future__ import annotations

UNNEEDED = "unneeded-work"

WALLS: dict[str, tuple[str, ...]] = {
    "compute": (
        UNNEEDED,
        "fast-path-off",
        "misaligned-shapes",
        "slow-kernels",
        "recompute",
        "throttled",
        "at-the-roof",
    ),
    "bandwidth": (
        "unfused-pointwise",
        "unfused-attention",
        "unfused-optimizer",
        "dtype-casts",
        "layout-copies",
        "gather-scatter",
        "memory-roof",
    ),
    "overhead": (
        "launch-bound",
        "host-sync",
        "host-work",
        "allocator",
        "graph-breaks",
        "recompilation",
        "gc-pause",
        "unstable-steps",
    ),
    "data": ("loader-starved", "copy-exposed"),
    "comms": ("exposed-collective", "small-collectives", "straggler", "slow-link", "pipeline-bubble"),
}

WALL_OF: dict[str, str] = {cause: wall for wall, causes in WALLS.items() for cause in causes}

# Shares with the same meaning wherever they are asked: one value for one idea. All are chosen by hand, not
# calibrated; `benchmarks/sensitivity.py` shows which recordings hang on them.
WAITED_FOR_SHARE = 0.001  # of the step: less waiting than this is none
MENTION_SHARE = 0.01  # of the step: less is not mentioned beside what takes more
WORTH_IT = 0.05  # of the step: less than this is not a wall
SMALL_PART = 0.1  # of a whole: what may be unknown, or otherwise, without changing what is said of it
NEARLY_ALL = 1.0 - SMALL_PART
FAIR_PART = 0.25  # of a whole: enough of it to be behind it, or to be told beside it
NEAR = 1.0 - FAIR_PART  # of another figure: as good as it
MAJORITY_SHARE = 0.5  # of a whole: what "most of it" means

# The causes that mean "nothing left to recover": the happy walls.
ROOFS = ("at-the-roof", "memory-roof")


# Which of the four questions, asked in order, a cause answers: earlier ones win a near tie.
QUESTION_OF: dict[str, int] = {
    **{cause: 1 for wall in ("overhead", "data", "comms") for cause in WALLS[wall]},
    **dict.fromkeys(WALLS["bandwidth"], 2),
    **dict.fromkeys(WALLS["compute"], 3),
    "unstable-steps": 0,
}

KERNEL_CLASSES = (
    "matmul",
    "conv",
    "attention",
    "pointwise",
    "norm",
    "reduce",
    "softmax",
    "copy",
    "optimizer",
    "gather",
    "collective",
    "memcpy",
    "other",
)
CLASS_INDEX = {name: index for index, name in enumerate(KERNEL_CLASSES)}
MATRIX_CLASSES = ("matmul", "conv", "attention")  # what tensor cores are made for

# Rounds of a loop; both chosen by hand, not calibrated. Fewer may be the few branches of a model; more ops
# than that are too many to try, and bound the time it takes.
FEWEST_REPEATS = 8
LONGEST_ROUND = 64
