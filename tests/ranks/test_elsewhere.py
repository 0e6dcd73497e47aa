"""Ranks read elsewhere: on a Ray cluster whose nodes die, and from addresses that fsspec opens."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import findwall
from findwall.cli import main
from findwall.errors import InputError
from findwall.examine.many_ranks import MANY_RANKS, write_summaries
from findwall.model.diagnosis import Diagnosis
from findwall.ranks.reduced.mapping import reduced
from findwall.readers.remote_paths import place
from planted import PLANTED, SCORING


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    for timeline in PLANTED.plant("slow-gpu", MANY_RANKS, seed=1, kernels=24).timelines:
        SCORING.write_trace(timeline, folder / f"rank{timeline.header.rank}.json.gz")
    return folder


def body(diagnosis: Diagnosis) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(diagnosis)
    return document


# -- a cluster ---------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[Any]:
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20}
    made = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    made.dies = made.add_node(**node)
    made.add_node(**node)
    made.wait_for_nodes()
    yield made
    made.shutdown()


def test_a_cluster_says_what_this_machine_says_also_when_a_node_dies(traces: Path, cluster: Any) -> None:
    killed = []

    def kill_one(done: int, of: int) -> None:
        if not killed and done == of // 4:
            killed.append(cluster.dies)
            cluster.remove_node(cluster.dies, allow_graceful=False)

    here = body(findwall.read(traces))
    assert body(findwall.read(traces, ray=cluster.address)) == here
    assert body(findwall.read(traces, ray=cluster.address, progress=kill_one)) == here
    assert killed


def test_without_ray_a_person_is_told(
    traces: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SystemExit) as ended:
        main(["read", str(traces), "--ray", "auto"])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and "pip install 'findwall[ray]'" in said and len(said.splitlines()) == 2


def test_a_cluster_that_is_not_there_is_told_at_once(traces: Path) -> None:
    pytest.importorskip("ray")
    with pytest.raises(InputError, match=r"No Ray cluster answers at 127\.0\.0\.1:9"):
        findwall.read(traces, ray="127.0.0.1:9")


# -- addresses ---------------------------------------------------------------------------------------------


@pytest.fixture
def memory() -> Iterator[Any]:
    """A store that is no folder of this machine."""
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


def test_a_trace_and_a_summary_are_read_from_a_store(traces: Path, memory: Any) -> None:
    path = traces / "rank0.json.gz"
    memory.pipe_file("/job/rank0.json.gz", path.read_bytes())
    there, here = findwall.read("memory://job/rank0.json.gz"), findwall.read(path)
    assert there.source.paths == ["memory://job/rank0.json.gz"]
    assert body(there)["budget"] == body(here)["budget"]
    written, refused = write_summaries([place("memory://job")], place("memory://kept"))
    assert [str(one) for one in written] == ["memory://kept/rank0.fwrank"] and not refused
    summary, again = reduced(written[0]).summary, reduced(path).summary
    assert summary is not None and again is not None and summary.own_ns == again.own_ns


def test_a_folder_at_an_address_says_what_the_folder_says(traces: Path) -> None:
    pytest.importorskip("fsspec")
    there, here = body(findwall.read(traces.as_uri())), body(findwall.read(traces))
    assert there["ranks"] == here["ranks"] and there["budget"] == here["budget"]


def test_what_is_not_at_an_address_is_told(memory: Any) -> None:
    memory.pipe_file("/job/notes.txt", b"no trace")
    for address, said in (
        ("memory://job/gone.json", "does not exist"),
        ("memory://job/notes.txt", "not JSON"),
        ("memory://job", "holds no readable trace"),
        ("nowhere://job", "Protocol not known"),
    ):
        with pytest.raises(InputError, match=said):
            findwall.read(address)


def test_without_fsspec_a_person_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(InputError) as told:
        findwall.read("s3://bucket/run")
    assert "s3://bucket/run" in told.value.message and "findwall[remote]" in told.value.hint
