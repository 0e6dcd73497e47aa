"""Small traces as each generation of torch.profiler writes them, made up for the tests."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

Event = dict[str, Any]

HEADER: dict[str, Any] = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "numSms": 132}],
    "record_shapes": 1,
    "cuda_runtime_version": 13000,
    "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
    "baseTimeNanoseconds": 1790857026000000000,
}

_KERNELS = ("gemm<float, 128>", "void at::native::vectorized_elementwise_kernel<4>", "nvjet_sm90_hsh")


def complete(cat: str, name: str, ts: str, dur: str, **more: Any) -> Event:
    event = {"ph": "X", "cat": cat, "name": name, "pid": 100, "tid": 7, "ts": Number(ts), "dur": Number(dur)}
    return {**event, **more}


def Number(text: str) -> str:
    """A number that keeps its digits when it is written; `dump` takes the quotes away."""
    return f"@number {text}"


def modern(steps: int = 3, ops: int = 4) -> list[Event]:
    """torch 2.x on CUDA: steps of ops, each with a launch and a kernel, one copy and one memset a step."""
    events: list[Event] = [
        {"name": "process_name", "ph": "M", "ts": 0, "pid": 100, "tid": 0, "args": {"name": "python3"}},
        {
            "name": "thread_name",
            "ph": "M",
            "ts": 0,
            "pid": 100,
            "tid": 7,
            "args": {"name": "thread 7 (main)"},
        },
        {
            "ph": "X",
            "cat": "Trace",
            "ts": 0,
            "dur": 9e9,
            "pid": "Spans",
            "tid": "PyTorch Profiler",
            "name": "P",
        },
        {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 0},
    ]
    ids = iter(range(1, 10**6))
    for step in range(steps):
        base = 1_000_000_000_000 + step * 1000
        annotation = {"External id": next(ids), "Ev Idx": 0}
        name = f"ProfilerStep#{step}"
        events.append(complete("user_annotation", name, f"{base}.000", "900.000", args=annotation))
        events.append(
            complete("gpu_user_annotation", name, f"{base}.500", "800.000", pid=0, args={"External id": 1})
        )
        for op in range(ops):
            events += _op(base + 10 + 50 * op, op, next(ids), next(ids))
        events.append(_memory(base + 5, step))
        events += _copy(base + 700, next(ids))
    return events


def _op(at: int, number: int, external: int, correlation: int) -> list[Event]:
    inputs = {
        "External id": external,
        "Sequence number": number,
        "Fwd thread id": 0,
        "Input Dims": [[32, 8 * number], [8 * number]],
        "Input type": ["float", "float"],
        "Input Strides": [[8 * number, 1], [1]],
        "Concrete Inputs": ["", ""],
        "Ev Idx": external,
    }
    launch = {
        "device": 0,
        "context": 1,
        "stream": 7,
        "correlation": correlation,
        "External id": external,
        "registers per thread": 32,
        "shared memory": 1024,
        "blocks per SM": 0.5,
        "grid": [number + 1, 1, 1],
        "block": [128, 1, 1],
    }
    arrow = {
        "cat": "ac2g",
        "name": "ac2g",
        "id": correlation,
        "pid": 100,
        "tid": 7,
        "ts": Number(f"{at}.300"),
    }
    return [
        complete(
            "python_function", f"train.py({number}): forward", f"{at}.000", "45.000", args={"Python id": 1}
        ),
        complete("cpu_op", f"aten::op{number}", f"{at}.100", "40.001", args=inputs),
        complete(
            "cuda_runtime",
            "cudaLaunchKernel",
            f"{at}.300",
            "5.250",
            args={"External id": external, "cbid": 211, "correlation": correlation},
        ),
        {"ph": "s", **arrow},
        {"ph": "f", **arrow, "bp": "e"},
        complete("kernel", _KERNELS[number % 3], f"{at + 12}.345", "30.217", pid=0, tid=7, args=launch),
    ]


def _copy(at: int, correlation: int) -> list[Event]:
    where = {"device": 0, "stream": 7, "correlation": correlation, "bytes": 4096}
    call = {"correlation": correlation, "cbid": 41}
    wait = {"stream": 7, "device": 0, "wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": 5}
    return [
        complete("cuda_runtime", "cudaMemcpyAsync", f"{at}.000", "9.000", args=call),
        complete("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", f"{at + 1}.000", "6.5", pid=0, args=where),
        complete(
            "gpu_memset", "Memset (Device)", f"{at + 20}.000", "1.25", pid=0, args={**where, "bytes": 16}
        ),
        complete("cuda_sync", "Stream Wait Event", f"{at + 30}.000", "2", pid=0, args=wait),
        complete("overhead", "Command Buffer Full", f"{at + 40}.000", "3.000", args={}),
    ]


def _memory(at: int, step: int) -> Event:
    args = {
        "Total Reserved": 2048,
        "Total Allocated": 1024 + step,
        "Bytes": 1,
        "Device Id": 0,
        "Device Type": 1,
    }
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": "[memory]",
        "pid": 100,
        "tid": 7,
        "ts": Number(f"{at}.125"),
        "args": args,
    }


def torch_1_8() -> list[Event]:
    """Capitalised categories, whole microseconds, text for thread ids, ranges among the operators."""
    host = {"Device": 25738, "External id": 2, "Trace name": "PyTorch Profiler", "Trace iteration": 0}
    return [
        complete("Operator", "ProfilerStep#0", "1623142623460100", "500", tid="25738", args=host),
        complete(
            "Operator",
            "aten::mm",
            "1623142623460110",
            "50",
            tid="25738",
            args={**host, "Input Dims": [[4, 8], [8, 2]], "Call stack": "a.py(3): f;b.py(9): <module>"},
        ),
        complete(
            "Runtime",
            "cudaLaunchKernel",
            "1623142623460120",
            "8",
            tid="25738",
            args={"cbid": 211, "correlation": 34, "external id": 2, "external ts": 1623142623460110},
        ),
        complete(
            "Kernel",
            "volta_sgemm_128x64_nn",
            "1623142623460140",
            "70",
            pid=0,
            tid="stream 7",
            args={"device": 0, "stream": 7, "correlation": 34, "external id": 2, "grid": [1, 2, 1]},
        ),
        complete(
            "Memset", "Memset (Device)", "1623142623460300", "2", pid=0, tid="stream 7", args={"bytes": 8}
        ),
    ]


def rocm() -> list[Event]:
    """HIP: the same categories, numbers written as text, the kernel's name on the launch."""
    call = {
        "cid": 48,
        "correlation": 9,
        "kernel": "Cijk_Ailk",
        "grid": [4, 1, 1],
        "bytes": "512",
        "kind": "2",
    }
    work = {"device": 2, "stream": 0, "correlation": 9, "kind": "Dispatch Kernel", "grid": [4, 1, 1]}
    return [
        complete("cuda_runtime", "hipLaunchKernel", "6869181218001.421", "1.803", args=call),
        complete("kernel", "Cijk_Ailk", "6869181218010.5", "20", pid=2, tid=0, args=work),
    ]


def dump(events: list[Event], header: dict[str, Any] | None = None, style: str = "kineto") -> bytes:
    """The document's text: as the profiler writes it, on one line, indented throughout, or an array."""
    header = HEADER if header is None else header
    if style == "array":
        text = json.dumps(events)
    elif style == "compact":
        text = json.dumps({**header, "traceEvents": events}, separators=(",", ":"))
    elif style == "indented":
        text = json.dumps({"traceEvents": events, **header}, indent=4)
    else:
        text = "{\n" + "".join(f'  "{key}": {json.dumps(value)},\n' for key, value in header.items())
        text += '  "traceEvents": [\n' + ",\n".join(map(_as_kineto, events))
        text += '\n  ],\n  "traceName": "made.json"\n}\n'
    return re.sub(r'"@number ([^"]*)"', r"\1", text).encode()


def _as_kineto(event: Event) -> str:
    return "  " + json.dumps(event).replace(', "args": {', ',\n    "args": {\n      ').replace(
        "}}", "\n    }\n  }"
    )


def save(
    path: Path, events: list[Event], header: dict[str, Any] | None = None, style: str = "kineto"
) -> Path:
    text = dump(events, header, style)
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return path
