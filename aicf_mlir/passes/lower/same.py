"""The one rule for every nn op that is already a launch: the same operands, every attribute written out."""

from __future__ import annotations

from xdsl.ir import Operation

from aicf_mlir.dialects.kernel import LAUNCHES
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.launches import attributes_of, launch_of, operands_of
from aicf_mlir.dialects.nn import NN

BY_NAME = {launch.name: launch for launch in LAUNCHES}


def lower_as_it_stands(op: Operation) -> list[KernelOp]:
    """The launch of the same name, or of the name that the op gives."""
    schema = launch_of(type(op))
    assert schema is not None
    results = dict(zip((row.name for row in schema.outputs), op.result_types, strict=True))
    launch = BY_NAME[f"kernel.{schema.name}"]
    return [launch.launch(operands_of(op, schema), results, **attributes_of(op, schema))]


RULES = {op: lower_as_it_stands for op in NN.operations if launch_of(op)}
