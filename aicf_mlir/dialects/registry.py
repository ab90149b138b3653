"""What the compiler asks the runtime about kernel ops: their rules, their aliases, their kernels.

The C++ registry is the only table of ops and kernels; nothing here knows any of them by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from aicf_mlir import _C
from aicf_mlir.dialects.attributes import AttributeValue
from aicf_mlir.errors import VerifyError

TensorSpec = tuple[str, tuple[int, ...]]
"""Element type and shape, e.g. ("f32", (64, 256))."""

Attributes = Mapping[str, AttributeValue]


@cache
def op_kinds() -> dict[str, int]:
    """The number of every op kind, by its name in the kernel dialect, e.g. "gemm_epilogue"."""
    return {name: number for number, name in _C.op_names().items()}


def op_kind(op_name: str) -> int:
    """The number of `op_name`. KeyError for a name the runtime does not have."""
    return op_kinds()[op_name]


def check_op(
    op_name: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], attrs: Attributes
) -> None:
    """Raise VerifyError, with what was expected and got, unless the schema of the op accepts this use."""
    _C.check_op(op_kind(op_name), list(inputs), list(outputs), dict(attrs))


def may_alias(
    op_name: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], attrs: Attributes
) -> frozenset[tuple[int, int]]:
    """Pairs (output, input) of which the output may be the very memory of the input."""
    pairs = _C.may_alias(op_kind(op_name), list(inputs), list(outputs), dict(attrs))
    return frozenset((output, input_) for output, input_ in pairs)


def check_target(target: str) -> None:
    """Raise VerifyError for a target that no plan can be made for; lists those that there are."""
    if target not in (known := _C.targets()):
        raise VerifyError(f"there is no target {target!r}; there are {', '.join(known)}")


def select_kernel(
    op_name: str,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    attrs: Attributes,
    target: str,
    kernel_id: str = "",
) -> tuple[str, int]:
    """The kernel id for this use on `target`, and the bytes of workspace that it needs.

    A `kernel_id` is kept if it is supported. Raises SelectionError with the reason of every candidate.
    """
    return _C.select_kernel(op_kind(op_name), list(inputs), list(outputs), dict(attrs), target, kernel_id)


def kernels_of(op_name: str) -> list[_C.KernelVariant]:
    """The kernels of an op, of all devices, in order of preference."""
    return [variant for variant in _C.kernel_variants() if variant["op"] == op_name]
