"""`aicf kernels`: the kernel ops, and the kernels of each in the order in which they are preferred.

Schemas and variants in C++ specify all of it. A kernel checks the element types, layouts and sizes of one use at a time:
`aicf-opt --remarks` tells which preferred kernels were declined, and why. The JSON is one object; keys are added, never changed
while `version` stays:

    {"version": 1, "ops": [OP, …]}      in the order of their numbers
    OP       name, doc, numerics        as `aicf_mlir.reports.describe` has them
             generated                  true if its kernels are made for each use; then `kernels` is empty
             kernels                    [KERNEL, …]: the first one that takes a use runs it
    KERNEL   id, device                 "gemm_cpu_blas", "cpu" or "cuda"
             min_sm                     the lowest compute capability, such as 80; 0 on the CPU
             max_sm                     the highest; 0 where there is none
             library                    the library that it is of, or null
             built                      true if this build has its code
             available                  true if it can run on this machine
             missing                    the reason if it cannot; null if it can
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches

from aicf_mlir import _C
from aicf_mlir.errors import BindError
from aicf_mlir.ir.registry import Schema, architecture, capability, kernels_of, schemas
from aicf_mlir.ir.renamed import now_called
from aicf_mlir.machine import cpu_kernels

VERSION = 1
"""The version of the JSON."""


@dataclass(frozen=True)
class KernelRow:
    """A row of the registry, and its availability here."""

    id: str
    device: str
    min_sm: int
    max_sm: int
    library: str | None
    built: bool
    available: bool
    missing: str | None


@dataclass(frozen=True)
class Op:
    """A kernel op with its kernels."""

    name: str
    doc: str
    numerics: str
    generated: bool
    kernels: tuple[KernelRow, ...]


def kernel_list(op: str | None = None, device: str | None = None) -> tuple[Op, ...]:
    """All ops, or one; with their kernels on all devices, or on one. Raises BindError for an unknown op."""
    rows = schemas()
    if op is not None and op not in rows:
        raise BindError(_unknown(op, rows))
    present = newest_device()
    return tuple(_op(schema, device, present) for name, schema in rows.items() if op is None or op == name)


def newest_device() -> str | None:
    """The target of the highest compute capability of this machine, such as "sm_90"; None without a usable CUDA device."""
    targets = [_C.target_of(f"cuda:{index}") for index in range(_C.device_count("cuda"))]
    return max(targets, key=capability, default=None)


def _op(schema: Schema, device: str | None, present: str | None) -> Op:
    kernels = tuple(
        _kernel(variant, present)
        for variant in kernels_of(schema.name)
        if device is None or variant["device"] == device
    )
    return Op(schema.name, schema.doc, schema.numerics, schema.generated, kernels)


def _kernel(variant: _C.KernelVariant, present: str | None) -> KernelRow:
    missing = _missing(variant, present)
    return KernelRow(
        variant["name"],
        variant["device"],
        variant["min_sm"],
        variant["max_sm"],
        variant["library"],
        variant["built"],
        missing is None,
        missing,
    )


def _missing(variant: _C.KernelVariant, present: str | None) -> str | None:
    """The reason why a kernel cannot run here."""
    if not variant["built"]:
        return "not in this build"
    if variant["device"] == "cpu":
        return None
    if present is None:
        return "no CUDA device here"
    newest = variant["max_sm"] or capability(present)
    if not variant["min_sm"] <= capability(present) <= newest:
        return f"the device here is {architecture(present)}"
    titles = {name: title for name, title, _ in _C.libraries()}
    library = variant["library"]
    return None if library is None or library in present.split("+") else f"no {titles[library]} here"


def _unknown(name: str, rows: dict[str, Schema]) -> str:
    """The message for an unknown op; for the name of a kernel, its op; else the nearest names."""
    owner = next((variant["op"] for variant in _C.kernel_variants() if variant["name"] == name), None)
    if owner is not None:
        return f"'{name}' is a kernel of the op {owner}: aicf kernels {owner}"
    near = get_close_matches(name.removeprefix("kernel."), rows, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(rows)}"
    return f"there is no kernel op '{name}'; {now_called(name) or hint}"


def to_json(ops: Sequence[Op]) -> str:
    """The JSON of this file's docstring."""
    return json.dumps({"version": VERSION, "ops": [asdict(op) for op in ops]}, indent=2, ensure_ascii=False)


def to_table(ops: Sequence[Op]) -> str:
    """The table for reading: the general part, and a paragraph for each op."""
    width = max((len(kernel.id) for op in ops for kernel in op.kernels), default=0)
    head = [
        f"CPU kernels for {cpu_kernels.chosen()}; of the kernels of an op, the first that takes a use runs it"
    ]
    if len(generated := [op.name for op in ops if op.generated]) > 1:
        head.append(f"generated for each use: {', '.join(generated)}")
    return "\n\n".join("\n".join(lines) for lines in (head, *(_paragraph(op, width) for op in ops)))


def _paragraph(op: Op, width: int) -> list[str]:
    lines = [f"{op.name}: {op.doc}", *([f"  {op.numerics}"] if op.numerics else [])]
    if op.generated:
        made = "LLVM IR on the CPU, CUDA C++ on a GPU"
        lines.append(f"  gen_{op.name}_…  generated for each use, from its scalar.body: {made}")
    elif not op.kernels:
        lines.append("  no kernel on this device")
    for kernel in op.kernels:
        more = "" if kernel.max_sm else " or newer"
        place = f"sm_{kernel.min_sm}{more}" if kernel.min_sm else kernel.device
        lines.append(f"  {kernel.id:{width}}  {place:<14}  {kernel.missing or 'available'}")
    return lines
