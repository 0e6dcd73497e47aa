"""Names of kernels and ops, cut to what tells them apart."""

from __future__ import annotations

import re

LONGEST_NAME_CHARS = 56  # of a kernel: leaves room for its op and shapes in a row of evidence
OP_NAME_CHARS = 40  # of an op in a list of several: the sentence has others to hold
_LIBRARY = re.compile(r"^_?(?:cudnn|miopen|native)_")  # whose kernel does it is no part of the op's name
_WRAPPER = re.compile(r"gpu_|[AB]?(?:Unary|Binary)|func_wrapper")
# Only where a word begins: from each of its characters, a long one would be read to its end.
_FUNCTOR = re.compile(r"(?<!\w)(\w*(?:Functor|_kernel_cuda|_kernel_impl|_cuda|Op|Ops))\b")


def short_kernel(name: str) -> str:
    """A kernel's name without return type, namespaces, template noise and arguments."""
    if name.startswith(("Memcpy", "Memset")):
        return name
    name = name.replace("(anonymous namespace)::", "")
    path = _before_templates(name)
    base = path.rpartition("::")[2] or name
    inner = name.partition("<")[2]
    if base in ("Kernel", "Kernel2"):  # CUTLASS: the wrapper is always called so
        return shorten(_before_templates(inner.removesuffix(">")).split(">")[0].rpartition("::")[2] or base)
    telling = [word for word in _FUNCTOR.findall(inner) if not _WRAPPER.match(word)]
    text = f"{base}<{telling[0]}>" if telling and "elementwise" in base else base
    return shorten(text)


def _before_templates(name: str) -> str:
    name = name.removeprefix("void ").removeprefix("static ").removeprefix("std::enable_if")
    cut = [at for at in (name.find("<"), name.find("(")) if at > 0]
    return name[: min(cut)].strip() if cut else name.strip()


def bare(op: str) -> str:
    """An op without its namespace and without whose kernel does it."""
    return shorten(_LIBRARY.sub("", op.removeprefix("aten::")), OP_NAME_CHARS)


def shorten(text: str, width: int = LONGEST_NAME_CHARS) -> str:
    """Cut in the middle: both ends of a name tell it apart."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[-(width - 1 - head) :]}"
