"""`findwall doctor`: the environment's audit and the ceilings, without a job."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from findwall.cli.around.progress import say
from findwall.cli.ceilings import show, write_json
from findwall.model.machine import Ceilings, Finding
from findwall.model.topology import NOT_SEEN, Topology
from findwall.report.texts.topology_text import to_text
from findwall.units import format_rate


class Checkup(msgspec.Struct, frozen=True):
    """What `findwall doctor` found."""

    versions: dict[str, str | None]
    device: str
    findings: tuple[Finding, ...]
    ceilings: Ceilings
    topology: Topology = NOT_SEEN
    schema: str = "findwall-doctor/1"


@click.command(name="doctor")
@click.option(
    "--json", "json_path", metavar="FILE|-", is_flag=False, flag_value="-", help="Write it as JSON."
)
@click.option("--measure", is_flag=True, help="Measure the ceilings too (under 30 s).")
def command(json_path: str | None, measure: bool) -> None:
    """Look the machine over: settings, limits, neighbours and wiring that slow jobs down, and its ceilings.

    Needs neither a GPU nor torch. Nothing is changed.
    """
    from findwall.machine import neighbours
    from findwall.machine.environment import audit, versions

    torch, broken = _torch()
    topology = _topology()
    contended = neighbours.contention(neighbours.watch(), "just now")
    findings = (*broken, *contended, *audit(torch, topology=topology))
    device = device_name(torch)
    report = None
    if measure:
        from findwall.machine.ceilings import measure_ceilings, store

        click.echo("Measuring (at most 30 s)…", err=True)
        report = measure_ceilings()
        store(report)
    known = versions()
    ceilings = report.ceilings if report is not None else _known_ceilings(device, known)
    checkup = Checkup(known, device, findings, ceilings, topology)
    if json_path is not None:
        write_json(checkup, json_path)
    if json_path == "-":
        return
    _print(checkup)
    if report is not None:
        show(report, None)


def _topology() -> Topology:
    """How the machine is wired. Whatever breaks there, the rest is still looked at."""
    from findwall.machine.environment_host import Host
    from findwall.machine.wiring import whole_topology

    try:
        return whole_topology(Host())
    except Exception as error:  # noqa: BLE001 - it reads drivers and /sys of machines nobody has seen
        say(f"the topology could not be read ({type(error).__name__}: {error})")
        return NOT_SEEN


def _torch() -> tuple[Any, list[Finding]]:
    try:
        import torch
    except ImportError:
        return None, [Finding("no-torch", "info", "torch is not installed here.", "pip install torch")]
    except Exception as error:  # noqa: BLE001 - one that does not fit its CUDA libraries fails in many ways
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        return None, [
            Finding("torch-broken", "warning", f"torch cannot be imported ({reason}).", "reinstall torch")
        ]
    return torch, []


def device_name(torch: Any) -> str:
    """The device a job would use here: torch's first GPU, else NVML's, else the cores."""
    from findwall.machine.ceilings.numpy_cores import core_name
    from findwall.machine.environment_gpu import nvml, visible_states
    from findwall.machine.environment_host import Host

    if torch is not None and torch.cuda.is_available():
        return str(torch.cuda.get_device_name(0))
    with nvml() as library:
        states = [] if library is None else visible_states(library, Host())
    return states[0].name if states else core_name()


def _known_ceilings(device: str, versions: dict[str, str | None]) -> Ceilings:
    from findwall.machine.ceilings import cached_ceilings
    from findwall.machine.hardware import table_ceilings

    on_gpu = " cores" not in device
    driver = (versions["driver"] or "") if on_gpu else ""
    return cached_ceilings(device, driver, versions["torch"] or "") or table_ceilings(device)


def _print(checkup: Checkup) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(checkup.device, style="bold"))
    console.print(Text(", ".join(f"{name} {value}" for name, value in checkup.versions.items() if value)))
    if matrix := to_text(checkup.topology):
        console.print(Text(matrix), soft_wrap=True)
    for finding in checkup.findings:
        fix = f" Fix: {finding.fix}." if finding.fix else ""
        style = "yellow" if finding.level == "warning" else ""
        console.print(Text(f"{finding.level}: {finding.sentence}{fix}", style=style))
    if not any(finding.level == "warning" for finding in checkup.findings):
        console.print(Text("Nothing here slows a job down.", style="green"))
    console.print(Text(_sentence(checkup.ceilings)))


def _sentence(ceilings: Ceilings) -> str:
    if not ceilings.known:
        return "Ceilings: unknown. Measure them with: findwall ceilings"
    flops = ", ".join(f"{kind} {format_rate(value, 'FLOP/s')}" for kind, value in ceilings.flops.items())
    memory = format_rate(ceilings.bandwidth, "bytes/s") if ceilings.bandwidth else "unknown"
    hint = "" if ceilings.source == "measured" else " Measure this machine's own with: findwall ceilings"
    return f"Ceilings ({ceilings.origin}): {flops}; memory {memory}.{hint}"
