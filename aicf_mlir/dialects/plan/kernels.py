"""The kernels of a plan's launches: the use that a kernel is chosen for, and the inputs of generated ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xdsl.dialects.builtin import StringAttr

from aicf_mlir.dialects.generated import Selection
from aicf_mlir.dialects.plan.launch import LaunchOp
from aicf_mlir.dialects.plan.memory import SlotOp
from aicf_mlir.dialects.plan.program import ProgramOp
from aicf_mlir.errors import SelectionError, VerifyError
from aicf_mlir.ir.registry import Use
from aicf_mlir.kernels.kernel import Kernel


def use_of(launch: LaunchOp, slots: Mapping[str, SlotOp]) -> Use:
    """The use that the kernel of `launch` is chosen for."""
    inputs, outputs = (
        [slots[name].operand_spec for name in names] for names in (launch.reads, launch.writes)
    )
    return Use.of(launch.op.data, inputs, outputs, launch.values, launch.counts)


def generated_kernels(program: ProgramOp) -> dict[str, Kernel]:
    """The generated kernels of `program` by their ids."""
    return {id_: kernel for id_, (_, kernel) in generated_uses(program).items()}


def generated_uses(program: ProgramOp) -> dict[str, tuple[Use, Kernel]]:
    """The generated kernels of `program` by their ids, each with a use."""
    selection = Selection(program.parent_op(), program.target.data)
    slots = program.slots
    found: dict[str, tuple[Use, Kernel]] = {}
    for launch in program.launches:
        if not launch.bodies or launch.kernel_id.data in found:
            continue
        use = use_of(launch, slots)
        if (kernel := selection.generated(use, launch.kernel_id.data)) is not None:
            found[kernel.id] = use, kernel
    return found


def name_kernels(program: ProgramOp, wanted: Callable[[Selection, Use], str] | None = None) -> None:
    """Write a kernel id on each launch of a valid plan whose id is empty, for the plan's own target: the one `wanted`, if any."""
    selection, slots = Selection(program.parent_op(), program.target.data), program.slots
    for launch in program.launches:
        if launch.kernel_id.data:
            continue
        use = use_of(launch, slots)
        try:
            kernel_id, _ = selection.select(use, wanted(selection, use) if wanted else "")
        except (SelectionError, VerifyError) as error:
            launch.emit_error(f"no kernel for target {program.target.data}", error)
        launch.kernel_id = StringAttr(kernel_id)
