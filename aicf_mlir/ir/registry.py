"""The compiler's queries to the runtime about kernel ops: their declarations, their rules, their aliases, their kernels.

The schemas and variants in C++ are the only declaration of ops and kernels; nothing here knows any of them by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any, Literal, TypeVar

from aicf_mlir import _C
from aicf_mlir.errors import VerifyError
from aicf_mlir.ir.attributes import AttributeValue
from aicf_mlir.ir.roles import STATUS

TensorSpec = tuple[str, tuple[int, ...]]
"""Element type and shape, e.g. ("f32", (64, 256))."""

OperandSpec = TensorSpec | tuple[str, tuple[int, ...], tuple[int, ...], int]
"""The same, and of a part of another tensor its strides in elements, and the bytes that divide its address."""

Counts = tuple[tuple[int, ...], tuple[int, ...]]
"""The number of tensors that each operand of a schema stands for, and each result."""

Attributes = Mapping[str, AttributeValue]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Operand:
    """An operand or a result of an op."""

    name: str
    count: Literal["one", "optional", "many", "any"]
    """The count of tensors. `many` results are as many as the operand of the same name has; for `any` a use gives the number."""
    layout: Literal["dense", "strided"] = "dense"


@dataclass(frozen=True)
class Attribute:
    """An attribute of an op."""

    name: str
    type: Literal["bool", "int", "float", "str", "list[int]", "list[str]"]
    required: bool
    default: AttributeValue | None
    """The value that its absence means; None: nothing."""
    values: tuple[str, ...] | None
    """The possible values of a string; None: any text."""


@dataclass(frozen=True)
class Schema:
    """A kernel op, as C++ declares it."""

    number: int
    """The number in `aicf_mlir.OpKind`, where it is called `kind`."""
    kind: str
    name: str
    """The name in the kernel dialect, without the prefix."""
    doc: str
    numerics: str
    generated: bool
    """True if its kernels are generated: none is registered, and a launch brings its code."""
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    attrs: tuple[Attribute, ...]
    in_place: tuple[tuple[str, str], ...]
    """Pairs (result, operand) that may be the same memory."""

    @property
    def fixed(self) -> bool:
        """True if every operand and result is one tensor."""
        return all(row.count == "one" for row in (*self.inputs, *self.outputs))

    @property
    def chooses_results(self) -> bool:
        """True if a use tells which results exist."""
        return any(row.count == "optional" for row in self.outputs)

    def counts(self, inputs: Mapping[str, int], outputs: Mapping[str, int] | None = None) -> Counts:
        """The counts of a use, from its operands and from the results that it chooses."""
        given = tuple(inputs.get(row.name, 0) for row in self.inputs)
        results = tuple(
            inputs.get(row.name, 0)
            if row.count == "many"
            else int(row.count == "one") or (outputs or {}).get(row.name, 0)
            for row in self.outputs
        )
        return given, results


@cache
def schemas() -> dict[str, Schema]:
    """Every op by its name, e.g. "gemm_epilogue", in the order of the runtime."""
    return {row["name"]: _schema(row) for row in _C.op_schemas()}


def _schema(row: Mapping[str, Any]) -> Schema:
    given: dict[str, Any] = dict(row)
    for key in ("inputs", "outputs"):
        given[key] = tuple(Operand(*pair) for pair in given[key])
    given["attrs"] = tuple(_attribute(attr) for attr in given["attrs"])
    given["in_place"] = tuple(given["in_place"])
    return Schema(**given)


def _attribute(row: Mapping[str, Any]) -> Attribute:
    values = row["values"]
    given: dict[str, Any] = {**row, "values": None if values is None else tuple(values)}
    return Attribute(**given)


@cache
def checks() -> tuple[str, ...]:
    """The ops that compute a status, and nothing else: on CUDA they tell the host which check failed."""
    return tuple(op for op, schema in schemas().items() if [row.name for row in schema.outputs] == [STATUS])


def segments(
    rows: Sequence[Operand], counts: Sequence[int] | None, items: Sequence[Item]
) -> dict[str, Sequence[Item]]:
    """The items of each operand or result; without `counts`, one for each, of which the last may be missing.

    Counts that do not fit, which the schema refuses, give all under one name that no op has.
    """
    sizes = [int(at < len(items)) for at in range(len(rows))] if counts is None else list(counts)
    if len(sizes) != len(rows) or min(sizes, default=0) < 0 or sum(sizes) != len(items):
        return {"unnamed": items}
    ends = list(accumulate(sizes))
    return {row.name: items[end - size : end] for row, size, end in zip(rows, sizes, ends, strict=True)}


@dataclass(frozen=True)
class Use:
    """One use of an op: everything that its rules and its kernels depend on."""

    op: str
    inputs: tuple[OperandSpec, ...]
    outputs: tuple[OperandSpec, ...]
    attrs: tuple[tuple[str, str, Any], ...]
    """Name, type, value: `1`, `1.0` and `True` are equal, but not the same attribute."""
    counts: Counts | None

    @staticmethod
    def of(
        op: str,
        inputs: Sequence[OperandSpec],
        outputs: Sequence[OperandSpec],
        attrs: Attributes,
        counts: Counts | None = None,
    ) -> Use:
        """A use; without `counts`, every operand and result is one tensor, or an optional one at the end is missing."""
        frozen = tuple(
            (name, type(value).__name__, tuple(value) if isinstance(value, list) else value)
            for name, value in attrs.items()
        )
        return Use(op, tuple(inputs), tuple(outputs), frozen, counts)

    @property
    def arguments(self) -> tuple[str, list[_C.TensorType], list[_C.TensorType], dict[str, Any]]:
        """The arguments as the runtime takes them."""
        return self.op, list(self.inputs), list(self.outputs), {name: value for name, _, value in self.attrs}


@lru_cache(maxsize=4096)
def check_op(use: Use) -> None:
    """Raise VerifyError, with what was expected and got, unless the schema of the op accepts this use."""
    _C.check_op(*use.arguments, use.counts)


@lru_cache(maxsize=4096)
def may_alias(use: Use) -> frozenset[tuple[int, int]]:
    """Pairs (output, input) whose output may be in the very memory of the input."""
    return frozenset(_C.may_alias(*use.arguments, use.counts))


def check_target(target: str) -> None:
    """Raise VerifyError for a target that no plan can be made for; it lists the possible ones."""
    if target not in (known := _C.targets()):
        plain = ", ".join(each for each in known if "+" not in each)
        libraries = ", ".join(f"+{name}" for name, *_ in _C.libraries())
        raise VerifyError(
            f"there is no target {target!r}; there are {plain}, those of a GPU with any of {libraries} in this order"
        )


def is_cpu(target: str) -> bool:
    """True if plans for the target run on the processor."""
    return architecture(target) == "cpu"


def capability(target: str) -> int:
    """The compute capability of a CUDA target: 90 of "sm_90" and of "sm_90+cublaslt"."""
    return int(architecture(target).removeprefix("sm_"))


def architecture(target: str) -> str:
    """The architecture that code is compiled for: "sm_90" of "sm_90+cublaslt"."""
    return target.partition("+")[0]


def runs_on(target: str, present: str) -> bool:
    """True if plans for one CUDA target run on a device of another: nothing is missing there."""
    wanted, there = (set(text.split("+")[1:]) for text in (target, present))
    return capability(target) <= capability(present) and wanted <= there


@lru_cache(maxsize=4096)
def select_kernel(use: Use, target: str, kernel_id: str = "") -> tuple[str, int]:
    """The kernel id for this use on `target`, and the bytes of workspace that it needs.

    A `kernel_id` is kept if it is supported. Raises SelectionError with the reason of every candidate.
    """
    return _C.select_kernel(*use.arguments, target, kernel_id, use.counts)


def preference(use: Use, kernel_id: str) -> str:
    """The reason why a plan that names no kernel has another one than `kernel_id` for this use, which `kernel_id` supports; ""
    if it has this one.
    """
    return _C.kernel_preference(*use.arguments, kernel_id, use.counts)


def kernels_of(op_name: str) -> list[_C.KernelVariant]:
    """The kernels of an op, of all devices, in order of preference."""
    return [variant for variant in _C.kernel_variants() if variant["op"] == op_name]
