"""Jobs of every kind, drawn at random: kernels, gaps, copies, syncs, late starts, on any device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from msgspec.structs import replace

from contradictions import Known
from findwall.model.events import Kind, Timeline
from findwall.model.machine import CpuUse, Telemetry
from findwall.model.measured_run import Rank, Run, StepTimes
from sketch import DRAWN_KERNELS, Drawing, hosts_own

MAKERS = {"NVIDIA H200": "nvidia", "Tesla V100-SXM2-16GB": "nvidia", "AMD Instinct MI300X": "amd", "": ""}


@dataclass(frozen=True)
class Job:
    """A drawn timeline, how it was recorded and on what it ran."""

    drawing: Drawing
    device: str
    shapes: bool
    replays: bool
    blocks: int | None  # of every grid; 0 is how ROCm writes "not recorded"
    cores: int | None
    on_cores: bool
    timed: tuple[float, ...]  # steps timed, times the traced step
    given: float | None  # true step, times the traced one

    @property
    def known(self) -> Known:
        maker = "cpu" if self.on_cores else MAKERS[self.device]
        return Known(maker, self.cores, self.replays and not self.on_cores, memory_told=maker == "nvidia")

    @property
    def timeline(self) -> Timeline:
        timeline = self.drawing.on(self.device)
        events, details, header = timeline.events, timeline.details, timeline.header
        if not self.shapes:
            events = replace(events, inputs=np.full_like(events.inputs, -1))
            details, header = replace(details, inputs=[]), replace(header, shapes=False)
        if self.blocks is not None:
            kernels = events.is_kind(Kind.KERNEL)
            events = replace(events, launch=np.where(kernels, 0, -1).astype(events.launch.dtype))
            grid = f'{{"grid":[{self.blocks},1,1],"block":[128,1,1]}}'.encode()
            details = replace(details, launch=[grid])
        names = [self._renamed(name) for name in timeline.names]
        found = replace(timeline, events=events, details=details, header=header, names=names)
        return hosts_own(found) if self.on_cores else found

    def _renamed(self, name: str) -> str:
        if self.replays:
            name = name.replace("cudaLaunchKernel", "cudaGraphLaunch")
        if MAKERS[self.device] != "nvidia":
            name = name.replace("(Pageable -> Device)", "").replace("(Device -> Pageable)", "")
            name = name.replace("cudaL", "hipL").replace("cudaM", "hipM").replace("cudaG", "hipG")
        return name

    @property
    def run(self) -> Run:
        length = len(self.drawing.cpu) * self.drawing.us / 1e6
        times = StepTimes(tuple(one * length for one in self.timed), "measured") if self.timed else None
        telemetry = Telemetry(cpu=CpuUse(cores=self.cores)) if self.cores is not None else Telemetry()
        rank = Rank(
            0,
            self.timeline,
            step_times=times,
            telemetry=telemetry,
            device_kind="cpu" if self.on_cores else "gpu",
        )
        return Run("torch-trace", ("drawn",), (rank,))

    @property
    def step_ms(self) -> float | None:
        return (
            None if self.given is None else self.given * (len(self.drawing.cpu) + 1) * self.drawing.us / 1e3
        )


ANY = st.builds(
    Job,
    drawing=st.builds(
        Drawing,
        cpu=st.one_of(
            st.text("oon.", min_size=4, max_size=12), st.text("ooosncfmdyj.. ", min_size=4, max_size=12)
        ),
        kernels=st.text("kkmmnlwwxtu" + "".join(DRAWN_KERNELS), min_size=1, max_size=4),
        lengths=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=5).map(tuple),
        us=st.sampled_from([2, 10, 100, 1000, 5000]),
    ),
    device=st.sampled_from(sorted(MAKERS)),
    shapes=st.booleans(),
    replays=st.sampled_from([False, False, False, True]),
    blocks=st.sampled_from([None, None, 0, 1, 4096]),
    cores=st.sampled_from([None, 2, 16]),
    on_cores=st.sampled_from([False, False, False, False, True]),
    timed=st.one_of(st.just(()), st.lists(st.floats(0.9, 4.0), min_size=5, max_size=12).map(tuple)),
    given=st.one_of(st.none(), st.floats(0.9, 3.0)),
)
# Large kernels one after the other, launched ahead: most of these stand at some roof, or close to one.
NEAR_A_ROOF = st.builds(
    Job,
    drawing=st.builds(
        Drawing,
        cpu=st.sampled_from(["oo..", "ooo...", "oooo....", "on.o.."]),
        kernels=st.text("mmwwkazou", min_size=1, max_size=4),
        lengths=st.lists(st.tuples(st.just(0), st.integers(1, 3)), min_size=1, max_size=5).map(tuple),
        us=st.sampled_from([500, 1000, 1000]),
    ),
    device=st.just("NVIDIA H200"),
    shapes=st.just(True),
    replays=st.booleans(),
    blocks=st.sampled_from([None, 4096]),
    cores=st.none(),
    on_cores=st.just(False),
    timed=st.just(()),
    given=st.one_of(st.none(), st.floats(1.0, 1.2)),
)
JOBS = st.one_of(ANY, ANY, NEAR_A_ROOF)
