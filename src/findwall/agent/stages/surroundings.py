"""What the job runs on and in: the environment's audit, versions, and ceilings measured here before.

Looked at once, between timing and trace. Each part is another module's and may fail without harm.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

from findwall.agent.engine import Engine
from findwall.model.machine import Environment


def look_around(engine: Engine) -> None:
    began = perf_counter_ns()
    for part in (_audit, _name_cores, _recall_ceilings):
        _try(engine, part)
    engine.record.cost["audit_s"] = (perf_counter_ns() - began) / 1e9


def _try(engine: Engine, part: Callable[[Engine], None]) -> None:
    try:
        part(engine)
    except Exception as error:  # noqa: BLE001 - fail open: what is beside the job must not cost its measurement
        engine.note(f"{part.__name__.strip('_').replace('_', ' ')} failed ({type(error).__name__}: {error})")


def _audit(engine: Engine) -> None:
    from findwall.machine import environment, neighbours

    contended = neighbours.contention(engine.record.telemetry.cpu)
    findings = (*contended, *environment.audit(engine.torch))
    engine.record.environment = Environment(findings, environment.versions())


def _name_cores(engine: Engine) -> None:
    if engine.device is None:
        from findwall.machine.ceilings.numpy_cores import core_name

        engine.record.device_name = core_name()


def _recall_ceilings(engine: Engine) -> None:
    """Of exactly this device, driver and torch. They are never measured inside a job."""
    from findwall.machine.ceilings.cache import cached_ceilings

    versions = engine.record.environment.versions
    name = engine.record.device_name
    if name:
        driver = None if engine.device is None else versions.get("driver")
        engine.record.ceilings = cached_ceilings(name, driver, versions.get("torch"))
