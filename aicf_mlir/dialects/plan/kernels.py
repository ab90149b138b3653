"""What the launches of a plan are generated from."""

from __future__ import annotations

from aicf_mlir.codegen.kernel import Kernel
from aicf_mlir.dialects.generated import Selection
from aicf_mlir.dialects.plan.program import ProgramOp
from aicf_mlir.ir.registry import Use


def generated_kernels(program: ProgramOp) -> dict[str, Kernel]:
    """The generated kernels of `program` by their ids."""
    selection = Selection(program.parent_op(), program.target.data)
    slots = program.slots
    found: dict[str, Kernel] = {}
    for launch in program.launches:
        if launch.body is None or launch.kernel_id.data in found:
            continue
        inputs, outputs = (
            [slots[name].operand_spec for name in names] for names in (launch.reads, launch.writes)
        )
        use = Use.of(launch.op.data, inputs, outputs, launch.values, launch.counts)
        if (kernel := selection.generated(use)) is not None:
            found[kernel.id] = kernel
    return found
