"""From a recorded rank to its facts: the data's way from the rows of a trace to the budget and the replay."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from findwall.causes.budget import claim_throttled, claim_whole, device_atoms, split_off
from findwall.dataflow.joining import Joined, called, joined
from findwall.dataflow.made_batches import batches_by_hand, marked
from findwall.dataflow.product_trees import traced_products
from findwall.dataflow.roles import for_what
from findwall.dataflow.scaled_weights import traced_scaled
from findwall.dataflow.sparse_operands import traced_sparse
from findwall.dataflow.traced_loops import traced_cell, traced_loops
from findwall.dataflow.unneeded import called_from, unneeded, unused_halves
from findwall.dataflow.wandering import wandering_reads
from findwall.facts.facts import Facts
from findwall.facts.gradient_free_work import without_gradients
from findwall.model.catalogue import MAJORITY_SHARE, SMALL_PART, UNNEEDED
from findwall.model.dataflow import Unneeded
from findwall.model.events import DEVICE_KINDS, Timeline
from findwall.model.machine import Ceilings
from findwall.model.measured_run import Rank, Run
from findwall.replay.build import build
from findwall.replay.calibrate import Calibration
from findwall.replay.graph import Graph
from findwall.replay.rewiring import batches_waited_for, with_freeing
from findwall.replay.step_reading import Conditions, StepReading
from findwall.replay.timed_batches import LOADER, as_waited_for
from findwall.replay.true_step import read_step
from findwall.step.captured_ops import noted_replays, with_captured_ops
from findwall.step.cores import core_ceilings, cores_as_device, slowed
from findwall.step.device_queue import line_up
from findwall.step.host_activity import asked_for, watch_host
from findwall.step.links import link
from findwall.step.step_bounds import find_steps
from findwall.step.step_facts import Host, Links, Queue, Whole
from findwall.step.step_window import representative, survey
from findwall.step.timed_steps import (
    collections_ns,
    cores_at_work,
    kinds_found,
    kinds_traced,
    loader_ns,
    rare_ns,
    throttled_share,
)
from findwall.units import NS_PER_S
from findwall.work.hardware_counters import match
from findwall.work.kernel_table import kernel_table, taken_at_their_word
from findwall.work.recomputed_kernels import because_of_checkpoints
from findwall.work.work_by_name import with_kernel_types
from findwall.work.work_facts import DeviceAtoms, KernelTable

HALF = 0.5  # of a convolution's backward pass: each of its two gradients takes as many products


def establish(
    run: Run, rank: Rank, ceilings: Ceilings, true_step_s: float | None, source: str
) -> Facts | None:
    """The facts of one rank; None without device events. A CPU job's device is its cores."""
    if rank.timeline is None:
        return None
    facts = _seen(run, rank, rank.timeline, ceilings, true_step_s, source)
    if facts is None or facts.by_hand is None:
        return facts
    again = _seen(run, rank, marked(rank.timeline, facts.by_hand), ceilings, true_step_s, source)
    return facts if again is None else replace(again, by_hand=facts.by_hand)


def _seen(
    run: Run, rank: Rank, recorded: Timeline, ceilings: Ceilings, true_step_s: float | None, source: str
) -> Facts | None:
    timeline = recorded
    on_cores = rank.device_kind == "cpu"
    if on_cores:
        timeline, ceilings = cores_as_device(timeline), core_ceilings(ceilings)
    whole = survey(timeline, on_cores, rank.evaluated, warm=rank.step_times is not None)
    if whole.steps.device < 0 or whole.steps.count == 0:
        return None
    timeline = representative(whole, kinds_found(rank, whole.told))
    timeline = with_captured_ops(timeline, rank.captures, noted_replays(recorded, rank.replays))
    return _with_dataflow(_judged(run, rank, timeline, whole, ceilings, true_step_s, source))


def _judged(
    run: Run,
    rank: Rank,
    timeline: Timeline,
    whole: Whole,
    ceilings: Ceilings,
    true_step_s: float | None,
    source: str,
) -> Facts:
    """The window's links, its replay, and each kernel against its floor."""
    on_cores = rank.device_kind == "cpu"
    links = link(timeline)
    timeline = with_kernel_types(timeline, links)
    steps = find_steps(timeline, links)
    host = watch_host(timeline, links, whole.left_out.hidden)
    queue = line_up(timeline, links, steps)
    profiled = match(timeline, timeline.rows(*DEVICE_KINDS), run.ncu, steps.count) if run.ncu else None
    nbytes = profiled.nbytes if profiled is not None else None
    kernels = kernel_table(timeline, links, ceilings, steps.count, nbytes)
    graph = _with_checkpoints(build(timeline, links, host, queue, on_cores), kernels, timeline, links)
    graph = with_freeing(graph, kernels.row, kernels.bytes) if on_cores else graph
    graph, conditions = _as_timed(graph, rank, timeline, queue, source)
    graph, calibration = _waiting_as_timed(graph, conditions, true_step_s)
    reading = read_step(graph, true_step_s, source, conditions.rare, calibration)
    if on_cores and (pace := reading.likely.pace) < 1.0 - SMALL_PART:
        kernels = kernel_table(timeline, links, slowed(ceilings, pace), steps.count, nbytes)
    judged = _at_their_word(kernels, rank, reading) if on_cores and not ceilings.known else kernels
    atoms = device_atoms(timeline, links, judged, queue, ceilings)
    atoms = _with_servants(atoms, kernels, timeline, links, host)
    return Facts(
        run=run,
        rank=rank,
        timeline=timeline,
        links=links,
        steps=steps,
        host=host,
        queue=queue,
        graph=graph,
        kernels=kernels,
        atoms=claim_throttled(atoms, kernels, throttled_share(rank.telemetry)),
        reading=reading,
        ceilings=ceilings,
        whole=whole,
        called=None,
        roles=np.full(len(timeline.events), -1, np.int64),
        profiled=profiled,
    )


def _with_checkpoints(graph: Graph, kernels: KernelTable, timeline: Timeline, links: Links) -> Graph:
    """With what is computed again in the backward pass told as such."""
    if not kernels.recompute.any():
        return graph
    late = because_of_checkpoints(timeline, links, kernels.row, kernels.recompute)
    return replace(graph, checkpointing=kernels.row[late])


def _with_dataflow(facts: Facts) -> Facts:
    """With what was seen of the job's tensors and lines. What the step does for nothing is of that cause,
    however fast it is done."""
    graph = joined(facts)
    facts = replace(facts, roles=for_what(facts, graph))
    if graph is not None:
        if facts.graph.on_cores:  # a GPU has a kernel for each
            halves = np.where(unused_halves(facts, graph), HALF, 0.0)
            facts = replace(facts, atoms=split_off(facts.atoms, halves, UNNEEDED))
        facts = replace(facts, called=called(graph))
        loops, wandering = traced_loops(facts, graph), wandering_reads(graph.flow)
        facts = replace(facts, loops=loops, wandering=wandering, cell=traced_cell(facts, graph))
        sparse = traced_sparse(facts, graph)
        products, scaled = traced_products(facts, graph), traced_scaled(facts, graph)
        facts = replace(facts, products=products, sparse=sparse, scaled=scaled)
    found = unneeded(facts, graph, facts.sparse or ())
    found += _evaluation(facts, graph, found)
    facts = replace(facts, by_hand=batches_by_hand(facts, graph, found))
    if not found:
        return facts
    mine, left = np.zeros(len(facts.atoms.index), bool), np.zeros(len(facts.atoms.index))
    for one in found:
        mine[one.whole] = True
        if one.left is not None:
            left[one.atoms] = one.left
    return replace(facts, unneeded=found, atoms=claim_whole(facts.atoms, mine, UNNEEDED, left))


def _evaluation(facts: Facts, graph: Joined | None, others: tuple[Unneeded, ...]) -> tuple[Unneeded, ...]:
    """Of every step, where the graph shows that nothing which is trained needs it: a trace alone cannot."""
    found = without_gradients(facts) if graph is not None else None
    if graph is None or found is None or found.flows_into != "nothing":
        return ()
    atoms = np.setdiff1d(found.atoms, np.concatenate([found.atoms[:0], *(one.atoms for one in others)]))
    whole = float(facts.own[atoms].sum()) > MAJORITY_SHARE * float(facts.own[found.atoms].sum())
    if not whole:
        return ()
    return (Unneeded("evaluation", atoms, -1, 0, called_from(facts, graph, atoms)),)


def _at_their_word(kernels: KernelTable, rank: Rank, reading: StepReading) -> KernelTable:
    """Kernels on cores that nobody measured."""
    likely = reading.likely
    return taken_at_their_word(kernels, cores_at_work(rank.telemetry, likely.busy / max(likely.step, 1.0)))


def _as_timed(
    graph: Graph, rank: Rank, timeline: Timeline, queue: Queue, source: str
) -> tuple[Graph, Conditions]:
    """The graph with what was measured beside the trace: kinds of steps, collections, the loader's time."""
    conditions = Conditions()
    if source == "measured":
        kinds = kinds_traced(rank, timeline, queue)
        graph = replace(graph, share=kinds.share)
        workers = bool(rank.loader_workers) or batches_waited_for(graph, LOADER).any()
        conditions = Conditions(rare_ns(rank, kinds), collections_ns(rank), loader_ns(rank), bool(workers))
    return conditions.change().apply(graph), conditions


def _waiting_as_timed(
    graph: Graph, conditions: Conditions, true_step_s: float | None
) -> tuple[Graph, Calibration | None]:
    """The graph with what was waited for workers while steps were timed, and the host that goes with it. Of
    rare steps only their time is known: the waits in them are in it."""
    if not conditions.by_workers or conditions.loader is None or true_step_s is None:
        return graph, None
    rare = conditions.rare
    step = max(true_step_s * NS_PER_S - sum(rare.values()), 0.0)
    return as_waited_for(graph, max(conditions.loader - rare.get(LOADER, 0.0), 0.0), step)


def _with_servants(
    atoms: DeviceAtoms, kernels: KernelTable, timeline: Timeline, links: Links, host: Host
) -> DeviceAtoms:
    """Kernels that a library only tries out, and those that only answer a question of the host."""
    tried = np.isin(kernels.op[atoms.index], host.trials)
    asked = asked_for(timeline, links, host.questions, kernels.row[atoms.index])
    return claim_whole(claim_whole(atoms, tried, "recompilation"), asked, "host-sync")
