"""The bytes that a launch of a plan moves and the operations that it computes, from the text of the plan alone.

Bytes are those of the tensors that it names, each once if it is read and once if it is written, so twice for one that is updated
in place. An element that strides repeat counts once, an element of a table even if it is not read. Workspaces and cached data are
no part of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from aicf_mlir.analysis.operations import of_kernel, of_launch
from aicf_mlir.dialects.plan import LaunchOp, ProgramOp
from aicf_mlir.dialects.plan.kernels import generated_kernels
from aicf_mlir.dialects.plan.memory import SlotOp
from aicf_mlir.ir.element_types import DTYPES, byte_size
from aicf_mlir.ir.layouts import Layout

TF32 = "tf32"
"""The name for the type of a product of f32 operands that may be rounded to TF32."""

FLOATS = frozenset(row.name for row in DTYPES if row.is_float)


@dataclass(frozen=True)
class Work:
    """The work of one launch."""

    nbytes: int
    """Read and written."""
    flops: int | None
    """The floating-point operations; None if their number is unknown."""
    element: str | None
    """The floating-point type of most of its elements, "tf32" for a product that may round to it: at whose rate it computes.

    None without one."""


def work_of(program: ProgramOp) -> list[Work]:
    """The work of each launch of `program`, in order."""
    kernels, slots = generated_kernels(program), program.slots
    work: list[Work] = []
    for launch in program.launches:
        reads, writes = ([slots[name] for name in names] for names in (launch.reads, launch.writes))
        kernel = kernels.get(launch.kernel_id.data)
        flops = of_kernel(kernel) if kernel is not None else _of_registered(launch, slots)
        element = TF32 if launch.values.get("allow_tf32") is True else _element([*reads, *writes])
        work.append(Work(_nbytes(reads) + _nbytes(writes), flops, element))
    return work


def _of_registered(launch: LaunchOp, slots: dict[str, SlotOp]) -> int | None:
    ins, outs = (
        {row: [slots[name].spec for name in names] for row, names in side.items()}
        for side in (launch.ins, launch.outs)
    )
    return of_launch(launch.op.data, ins, outs, launch.values)


def _nbytes(tensors: Iterable[SlotOp]) -> int:
    """The bytes of the tensors' places, each counted once."""
    places = {(slot.root, slot.spec[0], _places(slot)) for slot in tensors}
    return sum(byte_size(element, (count,)) for _, element, (count, *_) in places)


def _places(slot: SlotOp) -> tuple[int, int, tuple[tuple[int, int], ...]]:
    """The number of elements of a tensor's memory, and their places: the same for views that differ in the order alone."""
    layout = slot.layout or Layout.dense(slot.spec[1])
    if not layout.count:
        return 0, 0, ()
    steps: list[tuple[int, int]] = []
    for stride, size in sorted((stride, size) for size, stride in layout.significant if stride):
        if steps and stride == prod(steps[-1]):
            steps[-1] = steps[-1][0], steps[-1][1] * size
        else:
            steps.append((stride, size))
    return prod(size for _, size in steps), layout.offset, tuple(steps)


def _element(tensors: Iterable[SlotOp]) -> str | None:
    sizes: dict[str, int] = {}
    for slot in tensors:
        if slot.spec[0] in FLOATS:
            sizes[slot.spec[0]] = sizes.get(slot.spec[0], 0) + prod(slot.spec[1])
    return max(sizes, key=lambda name: sizes[name], default=None)
