"""The nn ops that are already launches: a kernel op has the same operands, attributes and results, or several of each.

Such an op has no entry about its launch: its meaning is that of the kernel op, and it lowers by rule. `NNOp.LAUNCH` is for a
kernel op of another name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from xdsl.ir import Operation, SSAValue

from aicf_mlir.dialects.nn.common import COUNTS, NNOp
from aicf_mlir.ir import registry
from aicf_mlir.ir.attributes import AttributeValue, from_attribute
from aicf_mlir.ir.registry import Schema

ALSO = {"one": ("one", "many", "optional"), "optional": ("optional",), "many": ("many",)}
"""The counts of a kernel op that an operand of an nn op may be, by its own."""


@cache
def launch_of(op: type[Operation]) -> Schema | None:
    """The kernel op that `op` is, operand for operand by the same names; None if there is none.

    One tensor, and a number that belongs to it, may stand for a list of them. Only passes give the optional operands at the end.
    """
    if not issubclass(op, NNOp):
        return None
    schema = registry.schemas().get(op.LAUNCH or op.name.removeprefix("nn."))
    definition = op.get_irdl_definition()
    operands = [(name, COUNTS[type(row)]) for name, row in definition.operands]
    if schema is None or [name for name, _ in operands] != [
        row.name for row in schema.inputs[: len(operands)]
    ]:
        return None
    if any(row.count not in ALSO[count] for (_, count), row in zip(operands, schema.inputs, strict=False)):
        return None
    if any(row.count != "optional" for row in schema.inputs[len(operands) :]):
        return None
    known = {row.name for row in schema.attrs}
    required = {row.name for row in schema.attrs if row.required}
    same_attributes = required <= definition.properties.keys() <= known
    same_results = len(schema.outputs) == len(definition.results) and all(
        row.count in ALSO["one"] for row in schema.outputs
    )
    return schema if same_attributes and same_results else None


def operands_of(op: Operation, schema: Schema) -> dict[str, Sequence[SSAValue]]:
    """The operands by the names that `schema`, the `launch_of` the op, has for them."""
    given = {row.name: getattr(op, row.name, None) for row in schema.inputs}
    return {
        name: () if value is None else (value,) if isinstance(value, SSAValue) else tuple(value)
        for name, value in given.items()
    }


def attributes_of(op: Operation, schema: Schema) -> dict[str, AttributeValue]:
    """The properties of the op, as its launch, the kernel op `schema`, has them."""
    lists = {row.name for row in schema.attrs if row.type == "list[int]"}
    given = {name: from_attribute(name, value) for name, value in op.properties.items()}
    return {
        name: [value] if name in lists and isinstance(value, int) else value for name, value in given.items()
    }
