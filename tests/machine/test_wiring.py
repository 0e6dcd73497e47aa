"""How a machine is wired, from a recorded state to what it costs; and the state, from NVML and /sys."""

from __future__ import annotations

from dataclasses import replace as dataclass_replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from findwall.machine.environment_gpu import GpuState
from findwall.machine.environment_host import Host
from findwall.machine.wiring import leaves_machine, look_at_topology, read_topology
from findwall.machine.wiring_findings import judge_topology, pcie_gbit
from findwall.machine.wiring_sysfs import distance, redirects, sys_bus
from findwall.model.machine import Finding
from findwall.model.topology import NvLink, PcieLink, Topology, nvlinks_between
from findwall.report.texts.topology_text import to_text

STATES = Path(__file__).parents[1] / "fixtures" / "topology"


def recorded(name: str) -> Topology:
    return msgspec.json.decode((STATES / f"{name}.json").read_bytes(), type=Topology, strict=True)


@pytest.fixture
def switched() -> Topology:
    return recorded("nvswitch_8")


@pytest.fixture
def plain() -> Topology:
    return recorded("pcie_8")


def ids(findings: list[Finding]) -> list[str]:
    return [finding.id for finding in findings]


def only(topology: Topology, **more: Any) -> Finding:
    (finding,) = judge_topology(topology, **more)
    assert finding.sentence.endswith(".") and finding.fix and not finding.fix.endswith(".")
    return finding


def with_gpu(topology: Topology, index: int, **changes: Any) -> Topology:
    gpus = [replace(gpu, **changes) if gpu.index == index else gpu for gpu in topology.gpus]
    return replace(topology, gpus=tuple(gpus))


def with_nic(topology: Topology, name: str, **changes: Any) -> Topology:
    nics = [replace(nic, **changes) if nic.name == name else nic for nic in topology.nics]
    return replace(topology, nics=tuple(nics))


class TestRecordedStates:
    @pytest.mark.parametrize("name", ["one_gpu", "nvswitch_8", "pcie_8"])
    def test_they_say_that_nobody_captured_them(self, name: str) -> None:
        assert "not captured" in recorded(name).origin
        again = msgspec.json.decode(msgspec.json.encode(recorded(name)), type=Topology)
        assert again == recorded(name)

    def test_one_gpu_has_nothing_to_be_far_from(self) -> None:
        assert judge_topology(recorded("one_gpu")) == []
        assert to_text(recorded("one_gpu")) == ""

    def test_eight_behind_switches_with_an_adapter_each_cost_nothing(self, switched: Topology) -> None:
        assert judge_topology(switched) == []

    def test_eight_on_pcie_cost_what_crosses_sockets(self, plain: Topology) -> None:
        sockets, adapter = sorted(judge_topology(plain), key=lambda one: one.id, reverse=True)
        assert (sockets.id, sockets.level) == ("gpus-across-sockets", "info")
        assert sockets.sentence.startswith("16 pairs of GPUs (such as 0 and 4) have no NVLink")
        assert "within GPUs 0-3 and 4-7" in sockets.fix
        assert (adapter.id, adapter.level) == ("gpu-nic-far", "warning")
        assert adapter.sentence.startswith("GPUs 4-7 have their nearest network adapter on another socket")
        assert ids(judge_topology(plain, between_machines=False)) == ["gpus-across-sockets"]

    def test_the_table_is_that_of_topo(self, switched: Topology, plain: Topology) -> None:
        lines = to_text(switched).splitlines()
        assert lines[1].split() == [
            "GPU0",
            "X",
            *["NV18"] * 7,
            "PIX",
            *["NODE"] * 3,
            *["SYS"] * 4,
            "0",
            "0-51,104-155",
        ]
        assert "mlx5_7: up, 400 Gbit/s, InfiniBand, NUMA 1" in lines
        row = to_text(plain).splitlines()[3].split()
        assert row == ["GPU2", "NODE", "NODE", "X", "PIX", *["SYS"] * 4, "NODE", "0", "0-31,64-95"]
        assert "NV#" not in to_text(plain).splitlines()[-1]


class TestFindings:
    @pytest.mark.parametrize(
        ("reason", "fix"),
        [
            ("disabled", "/etc/modprobe.d"),
            ("gpu", "fewer bytes"),
            ("chipset", "PCIe root"),
            ("topology", "one PCIe root"),
        ],
    )
    def test_peer_access_that_is_off(self, switched: Topology, reason: str, fix: str) -> None:
        pairs = tuple(replace(pair, p2p=reason) for pair in switched.pairs)
        finding = only(replace(switched, pairs=pairs))
        assert (finding.id, finding.level) == ("p2p-off", "warning")
        assert "all 28 pairs of GPUs" in finding.sentence
        assert fix in finding.fix

    def test_peer_access_that_is_off_between_two(self, switched: Topology) -> None:
        pairs = (replace(switched.pairs[0], p2p="disabled"), *switched.pairs[1:])
        assert "between GPUs 0 and 1 (" in only(replace(switched, pairs=pairs)).sentence

    def test_what_nobody_could_ask_is_no_finding(self, switched: Topology) -> None:
        pairs = tuple(replace(pair, p2p=None, level=None) for pair in switched.pairs)
        gpus = tuple(replace(gpu, nvlinks=None, numa=None) for gpu in switched.gpus)
        nics = tuple(
            replace(nic, is_up=None, rate_gbit=None, pcie=PcieLink(), levels={}) for nic in switched.nics
        )
        assert judge_topology(replace(switched, pairs=pairs, gpus=gpus, nics=nics, acs=None)) == []

    def test_links_that_are_down_on_one_card(self, switched: Topology) -> None:
        links = switched.gpus[3].nvlinks or ()
        finding = only(with_gpu(switched, 3, nvlinks=(*links[:16], NvLink(False), NvLink(False))))
        assert finding.id == "nvlink-down"
        assert finding.sentence.startswith("16 of 18 NVLinks of GPU 3 are up")
        assert "89 %" in finding.sentence

    def test_links_that_are_down_on_all_cards_of_a_board(self, switched: Topology) -> None:
        down = tuple(replace(gpu, nvlinks=(NvLink(False),) * 18) for gpu in switched.gpus)
        found = judge_topology(replace(switched, gpus=down))
        assert ids(found) == ["nvlink-down", "gpus-across-sockets"]
        assert "fabric manager" in found[0].fix
        # A card for a slot has them down wherever no bridge joins it: nobody lost anything.
        slots = tuple(replace(gpu, name="NVIDIA H100 PCIe") for gpu in down)
        assert ids(judge_topology(replace(switched, gpus=slots))) == ["gpus-across-sockets"]

    def test_bridges_that_redirect_peers(self, plain: Topology) -> None:
        here = replace(plain, acs=("0000:15:01.0",))
        assert "acs-on" in ids(judge_topology(here, between_machines=False))
        assert "acs-on" not in ids(judge_topology(replace(here, is_virtual=True)))
        assert "acs-on" not in ids(judge_topology(replace(plain, acs=())))

    def test_access_control_does_not_touch_nvlink(self, switched: Topology) -> None:
        here = replace(switched, acs=("0000:15:01.0", "0000:16:00.0"))
        assert judge_topology(here, between_machines=False) == []
        assert only(here).sentence.startswith("2 PCIe bridges above the GPUs redirect")

    def test_an_adapter_that_is_down_beside_others(self, switched: Topology) -> None:
        found = judge_topology(with_nic(switched, "mlx5_2", is_up=False))
        assert ids(found) == ["nic-down"]
        assert found[0].sentence.startswith("1 of 8 network adapters of one kind are down (mlx5_2)")

    def test_an_adapter_that_is_slower_than_its_kind(self, switched: Topology) -> None:
        finding = only(with_nic(switched, "mlx5_2", rate_gbit=200.0))
        assert finding.id == "nic-rate"
        assert finding.sentence.startswith("mlx5_2 runs at 200 Gbit/s, others of its kind at 400")
        other = with_nic(switched, "mlx5_2", rate_gbit=25.0, model="MT4117", layer="Ethernet")
        assert judge_topology(other) == []  # a port for something else

    def test_an_adapter_behind_a_narrow_link(self, switched: Topology) -> None:
        finding = only(with_nic(switched, "mlx5_1", pcie=PcieLink(4, 5, 16, 16)))
        assert finding.id == "nic-pcie"
        assert "400 Gbit/s behind a PCIe link of 252 Gbit/s (generation 4, 16 lanes)" in finding.sentence
        assert "63 %" in finding.sentence

    def test_what_a_link_carries(self) -> None:
        assert pcie_gbit(5, 16) == pytest.approx(504)
        assert pcie_gbit(None, 16) is None


class NVMLError_NotSupported(Exception):  # noqa: N801, N818 - as NVML names it
    pass


class FakeNvml:
    """Two GPUs joined by two NVLinks; a third link is down."""

    def __init__(self) -> None:
        self.asked = 0

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        self.asked += 1
        return index

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link > 2:
            raise NVMLError_NotSupported
        return int(link < 2)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:
        return 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> Any:
        return type("Pci", (), {"busId": f"00000000:1{1 - handle}:00.0".encode()})

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:
        return 0

    def nvmlDeviceGetP2PStatus(self, one: int, other: int, what: int) -> int:
        return 4 if (one, what) == (1, 1) else 0


TWO = [
    GpuState(index, "NVIDIA X", bus_id=f"00000000:1{index}:00.0", link_width=8, max_link_width=16)
    for index in (0, 1)
]


def sysfs(root: Path) -> Host:
    """Two GPUs behind one switch, an adapter behind another host bridge of the other socket."""
    devices = root / "sys" / "devices"
    places = {
        "0000:10:00.0": "pci0000:00/0000:00:01.0/0000:02:00.0/0000:03:00.0/0000:10:00.0",
        "0000:11:00.0": "pci0000:00/0000:00:01.0/0000:02:00.0/0000:03:01.0/0000:11:00.0",
        "0000:90:00.0": "pci0000:80/0000:80:01.0/0000:90:00.0",
    }
    links = root / "sys" / "bus" / "pci" / "devices"
    links.mkdir(parents=True)
    for bus, place in places.items():
        folder = devices / place
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text("1\n" if bus.startswith("0000:9") else "0\n")
        (folder / "local_cpulist").write_text("0-7\n")
        for name, text in {
            "current_link_speed": "16.0 GT/s PCIe",
            "max_link_speed": "32.0 GT/s PCIe",
        }.items():
            (folder / name).write_text(text)
        (folder / "current_link_width").write_text("16")
        (links / bus).symlink_to(folder)
    for bridge in ("pci0000:00/0000:00:01.0", "pci0000:00/0000:00:01.0/0000:02:00.0"):
        (links / bridge.rpartition("/")[2]).symlink_to(devices / bridge)
    port = root / "sys" / "class" / "infiniband" / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    (port.parents[1] / "device").symlink_to(devices / places["0000:90:00.0"])
    (port.parents[1] / "hca_type").write_text("MT4129\n")
    for name, text in {
        "rate": "400 Gb/sec (4X NDR)",
        "state": "4: ACTIVE",
        "link_layer": "InfiniBand",
    }.items():
        (port / name).write_text(text)
    return Host(environ={}, root=root)


class TestReading:
    def test_all_that_nvml_and_sys_say(self, tmp_path: Path) -> None:
        found = read_topology(FakeNvml(), TWO, sysfs(tmp_path))
        first, second = found.gpus
        assert (first.bus, first.numa, first.cores) == ("0000:10:00.0", 0, "0-7")
        assert [link.is_up for link in first.nvlinks or ()] == [True, True, False]
        assert nvlinks_between(first, second) == 2
        (pair,) = found.pairs
        assert (pair.level, pair.p2p) == ("INT", "disabled")
        (nic,) = found.nics
        assert (nic.bus, nic.numa, nic.rate_gbit, nic.is_up) == ("0000:90:00.0", 1, 400.0, True)
        assert (nic.pcie.generation, nic.pcie.max_generation, nic.pcie.width) == (4, 5, 16)
        assert nic.levels == {"0": "SYS", "1": "SYS"}
        assert found.acs is None  # nobody may read the bridges' settings
        assert set(ids(judge_topology(found))) == {"p2p-off", "nic-pcie", "gpu-nic-far"}

    def test_without_nvml_answers_sys_still_says_how_far(self, tmp_path: Path) -> None:
        class Silent:
            def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
                return index

        found = read_topology(Silent(), TWO, sysfs(tmp_path))
        assert found.gpus[0].nvlinks is None  # unknown, not none
        assert (found.pairs[0].level, found.pairs[0].p2p) == ("PIX", None)

    def test_a_machine_without_anything(self, tmp_path: Path) -> None:
        found = read_topology(object(), [GpuState(0, "X"), GpuState(1, "X")], Host(environ={}, root=tmp_path))
        assert (found.nics, found.acs) == ((), None)
        assert judge_topology(found) == []

    def test_a_job_waits_no_longer_than_its_limit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [0.0]

        def later() -> float:
            now[0] += 0.01
            return now[0]

        monkeypatch.setattr("findwall.machine.wiring.monotonic", later)
        library = FakeNvml()
        found = read_topology(library, TWO, sysfs(tmp_path), limit_s=0.04)
        assert library.asked <= 3
        assert (found.nics, found.acs) == ((), None)  # half of them would name the wrong one as the nearest
        assert found.gpus[1].nvlinks is None
        assert judge_topology(found, between_machines=False) == []

    def test_in_a_job_only_what_it_uses_is_looked_at(self, tmp_path: Path) -> None:
        host = sysfs(tmp_path)
        assert look_at_topology(FakeNvml(), TWO[:1], host) == []
        assert ids(look_at_topology(FakeNvml(), TWO, host)) == ["p2p-off"]
        away = dataclass_replace(host, environ={"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"})
        assert set(ids(look_at_topology(FakeNvml(), TWO[:1], away))) == {"nic-pcie", "gpu-nic-far"}

    def test_what_breaks_in_a_job_is_said_and_not_raised(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: Any) -> None:
            raise RuntimeError("no such thing")

        monkeypatch.setattr("findwall.machine.wiring.read_topology", broken)
        (finding,) = look_at_topology(FakeNvml(), TWO, sysfs(tmp_path))
        assert finding.id == "audit-incomplete" and "no such thing" in finding.sentence

    @pytest.mark.parametrize(
        ("environ", "away"),
        [
            ({}, False),
            ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}, False),
            ({"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, True),
            ({"WORLD_SIZE": "many", "LOCAL_WORLD_SIZE": "8"}, False),
            ({"SLURM_NNODES": "2"}, True),
            ({"SLURM_NNODES": "1"}, False),
        ],
    )
    def test_whether_a_job_leaves_the_machine(self, environ: dict[str, str], away: bool) -> None:
        assert leaves_machine(environ) is away


class TestSysfs:
    @pytest.mark.parametrize(
        ("one", "other", "nodes", "level"),
        [
            ("a/b/c/d", "a/b/e/f", (0, 0), "PIX"),
            ("a/b/c/d", "a/b/c/e", (0, 0), "PIX"),
            ("a/b/c/d/e", "a/b/f/g", (0, 0), "PXB"),
            ("a/b/c", "a/d/e", (0, 0), "PHB"),
            ("a/b", "c/d", (0, 0), "NODE"),
            ("a/b", "c/d", (0, 1), "SYS"),
            ("a/b", "c/d", (None, 1), None),
        ],
    )
    def test_distance(
        self, one: str, other: str, nodes: tuple[int | None, int | None], level: str | None
    ) -> None:
        assert distance(one.split("/"), other.split("/"), *nodes) == level

    def test_buses(self) -> None:
        assert sys_bus("00000000:1B:00.0") == "0000:1b:00.0"
        assert sys_bus("nonsense") is None
        assert sys_bus(None) is None

    def test_access_control(self) -> None:
        def config(control: int, capability: int = 0x000D) -> bytes:
            space = bytearray(4096)
            space[0x100:0x104] = (0x0001 | 0x148 << 20).to_bytes(4, "little")  # another, then the next one
            space[0x148:0x14C] = capability.to_bytes(4, "little")
            space[0x14E:0x150] = control.to_bytes(2, "little")
            return bytes(space)

        assert redirects(config(0b1101)) is True
        assert redirects(config(0b0001)) is False
        assert redirects(config(0b1101, 0x0003)) is False
        assert redirects(config(0b1101)[:64]) is None
