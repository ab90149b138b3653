"""Map values to slots: every launch gets its destinations, every result its place.

argument of role r    slot of role r
result "update"       the very slot of the argument that it replaces, where that is safe; otherwise a
                      temporary, which a copy at the end of the step moves there, on a GPU with others of its type
result "grad"         grad slot; "loss" and "output": output slot
kernel.constant       const slot, one for equal constants
kernel.reshape, view  alias of the slot that owns the memory
part of a kernel.join alias of the slot of the join
other results         temporary; that of an operand which is not needed any more, if the op works in place
workspace             temporary of its launch

A temporary is called as the value in the text that is written there first: @dw1 for %dw1.

If the function returns a status, launches that write to an argument's slot are skipped once a check has failed. So an update is
computed in place only after the checks, by a launch that computes nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import Selection
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.plan import LaunchOp, ProgramOp, SlotOp
from aicf_mlir.dialects.plan.hazards import order_launches
from aicf_mlir.errors import PlanError
from aicf_mlir.ir.attributes import AttributeValue, Symbol
from aicf_mlir.ir.body import COMPUTE, Body
from aicf_mlir.ir.locations import common_location
from aicf_mlir.ir.names import printed_names
from aicf_mlir.ir.registry import Use, checks, is_cpu
from aicf_mlir.ir.roles import KEPT_ROLES
from aicf_mlir.ir.signature import (
    STATUS,
    ArgumentIndex,
    argument_keys,
    argument_labels,
    result_keys,
    result_labels,
    return_op,
)
from aicf_mlir.ir.tensor_op import tensor_type
from aicf_mlir.kernels.segments import MOST_ADDRESSES
from aicf_mlir.passes.bufferize.skips import skippable_ops
from aicf_mlir.passes.bufferize.slots import SlotTable
from aicf_mlir.passes.bufferize.uses import LastUses
from aicf_mlir.passes.select_kernels import TARGET


def refuse(op: Operation, message: str) -> NoReturn:
    """Raise PlanError at `op`."""
    op.emit_error(message, PlanError(message))


def target_of(function: FuncOp) -> str:
    """The target that select-kernels has chosen kernels for."""
    target = function.attributes.get(TARGET)
    if not isinstance(target, StringAttr):
        refuse(function, f"@{function.sym_name.data} has no {TARGET}; run select-kernels first")
    return target.data


class Bufferizer:
    """The translation of one function."""

    def __init__(self, function: FuncOp):
        self.function = function
        self.terminator = return_op(function)
        self.target = target_of(function)
        self.selection = Selection(function.parent_op(), self.target)
        self.uses = LastUses(function, self.selection)
        self.names = printed_names(function)
        self.table = SlotTable()
        self.slot_of: dict[SSAValue, SlotOp] = {}
        self.launches: list[LaunchOp] = []
        self.copies_at_end: list[tuple[SSAValue, SlotOp]] = []
        self.status: SlotOp | None = None
        """The slot whose status skips the launches of updates."""
        self.skippable = skippable_ops(function, self.may_be_in_place)

    def run(self) -> ProgramOp:
        """The program that computes the function."""
        self.place_arguments()
        self.place_results()
        for op in self.function.body.block.ops:
            self.translate(op)
        for copies in self.together():
            self.copy(copies)
        order_launches(self.launches, self.table.by_symbol)
        ops = [*self.table.by_symbol.values(), *self.launches]
        program = ProgramOp(self.function.sym_name.data, self.target, ops)
        program.location = self.function.location
        return program

    def place_arguments(self) -> None:
        """Make a slot for every argument."""
        for argument, (role, name) in zip(self.function.args, argument_keys(self.function), strict=True):
            self.slot_of[argument] = self.table.named(name, tensor_spec(argument), role, name)
            if role == STATUS:
                self.status = self.slot_of[argument]

    def place_results(self) -> None:
        """Decide the place of each result of the function."""
        arguments = ArgumentIndex(argument_labels(self.function))
        labels, keys = result_labels(self.function), result_keys(self.function)
        for value, label in zip(self.terminator.operands, labels, strict=True):
            if label.role == STATUS and self.status is not None:
                self.place_status(value, self.status)
        for value, label, (role, name) in zip(self.terminator.operands, labels, keys, strict=True):
            if role == STATUS:
                continue
            if label.role == "update":
                self.place_update(value, self.function.args[arguments.updated_by(label)[0]])
            else:
                symbol = f"{name}.grad" if role == "grad" else name
                self.place(value, self.table.named(symbol, tensor_spec(value), role, name))

    def place_status(self, value: SSAValue, slot: SlotOp) -> None:
        """Place the status in its slot: each check passes on the result of the one before it."""
        if self.slot_of.get(value) is slot:
            return
        result = self.launched(value)
        argument = next(argument for argument, own in self.slot_of.items() if own is slot)
        if not (
            isinstance(result.op, KernelOp) and result.op.op_name in checks()
        ) or not self.uses.may_replace(result, argument):
            refuse(
                self.terminator,
                "expected the status to be that of a chain of checks, from the status argument to the result",
            )
        self.slot_of[result] = slot

    def place(self, value: SSAValue, slot: SlotOp) -> None:
        """Have the launch that makes `value`, directly or as a reshape of its result, write to `slot`."""
        result = self.launched(value)
        if result in self.slot_of:
            refuse(self.terminator, "expected every result of a launch to be returned once; run lower first")
        self.slot_of[result] = self.table.alias(slot, tensor_spec(result), self.names.get(result))

    def launched(self, value: SSAValue) -> OpResult:
        """The result of a launch whose memory `value` is."""
        owner = self.uses.owner_of(value)
        if not isinstance(owner, OpResult) or not isinstance(owner.op, KernelOp | kernel.JoinOp):
            refuse(self.terminator, "expected a launch behind every result; run lower first")
        return owner

    def may_be_in_place(self, value: SSAValue, argument: BlockArgument) -> bool:
        """True if the update `value` of an argument may be written to its slot."""
        return value is not argument and self.uses.may_replace(self.launched(value), argument)

    def place_update(self, value: SSAValue, argument: BlockArgument) -> None:
        """Place an update in the slot of the argument if its old value is not needed any more, else copy it there at the end."""
        if value is argument:
            return
        result, slot = self.launched(value), self.slot_of[argument]
        if tensor_spec(value) != tensor_spec(argument):
            refuse(
                self.terminator, f"expected the update of @{slot.symbol} to have its type, got {value.type}"
            )
        in_place = self.status is None or result.op in self.skippable
        if in_place and result not in self.slot_of and self.uses.may_replace(result, argument):
            self.slot_of[result] = self.table.alias(slot, tensor_spec(result), self.names.get(result))
        else:
            self.uses.keep(result)
            self.copies_at_end.append((value, slot))

    def translate(self, op: Operation) -> None:
        """Turn one op into slots and launches."""
        match op:
            case kernel.ConstantOp():
                self.slot_of[op.output] = self.table.constant(op.number, op.spec)
            case kernel.ReshapeOp():
                self.slot_of[op.output] = self.table.alias(
                    self.slot_of[op.input], op.spec, self.names.get(op.output)
                )
            case kernel.ViewOp():
                source = self.slot_of[op.input]
                self.slot_of[op.output] = self.table.part(
                    source, tensor_type(op.output), self.names.get(op.output)
                )
            case kernel.JoinOp():
                self.slot_of.setdefault(op.output, self.joined(op))
            case KernelOp():
                self.launch(op)
            case ReturnOp():
                pass
            case _:
                refuse(op, f"expected ops of the kernel dialect, got '{op.name}'; run lower first")

    def launch(self, op: KernelOp) -> None:
        """Append the launch that `op` is, with a slot for each result."""
        if op.kernel_id is None:
            refuse(op, f"'{op.name}' has no kernel id; run select-kernels first")
        taken: set[str] = set()
        for result in op.results:
            if (join := kernel.join_of(result)) is not None:
                self.slot_of[result] = self.table.part(
                    self.joined(join), tensor_type(result), self.names.get(result)
                )
            if result not in self.slot_of:
                self.slot_of[result] = self.reused(op, result, taken) or self.table.temporary(
                    tensor_spec(result), self.names.get(result)
                )
            taken.add(self.slot_of[result].root)
        symbol = self.table.symbols.numbered("k")
        launch = LaunchOp(
            symbol,
            op.kernel_id.data,
            op.op_name,
            [self.slot_of[value].symbol for value in op.operands],
            [self.slot_of[value].symbol for value in op.results],
            op.attrs,
            op.counts,
            self.scratch(symbol, op.workspace.value.data if op.workspace is not None else 0),
            self.status.symbol if self.status is not None and self.updates(op) else None,
        )
        launch.location = op.location
        self.launches.append(launch)

    def joined(self, join: kernel.JoinOp) -> SlotOp:
        """The slot that the operands of `join` are written to."""
        value = join.output
        if value not in self.slot_of:
            self.slot_of[value] = self.table.temporary(tensor_spec(value), self.names.get(value))
        return self.slot_of[value]

    def scratch(self, launch: str, nbytes: int) -> str | None:
        """The slot of the workspace of a launch; None if it needs none."""
        if not nbytes:
            return None
        return self.table.temporary(("i8", (nbytes,)), f"{launch}.workspace").symbol

    def updates(self, op: KernelOp) -> bool:
        """True if the launch of `op` writes to the slot of an argument."""
        return any(self.slot_of[result].role.data in KEPT_ROLES for result in op.results)

    def reused(self, op: KernelOp, result: OpResult, taken: set[str]) -> SlotOp | None:
        """The temporary of an operand that `result` may overwrite, if there is one."""
        for operand in op.operands:
            owner = self.uses.owner_of(operand)
            slot = self.slot_of[owner]
            if slot.role.data == "temp" and slot.root not in taken and self.uses.may_replace(result, owner):
                return self.table.alias(slot, tensor_spec(result), self.names.get(result))
        return None

    def together(self) -> list[list[tuple[SSAValue, SlotOp]]]:
        """The copies at the end, launch by launch: on a GPU one for each element type, as the statistics of all layers have.

        If one reads the slot of an argument, which another may write, they stay as they are, in their order.
        """
        roles = {self.table.by_symbol[self.slot_of[value].root].role.data for value, _ in self.copies_at_end}
        if is_cpu(self.target) or roles != {"temp"}:  # on a CPU a launch is a call
            return [[copy] for copy in self.copies_at_end]
        groups: dict[object, list[tuple[SSAValue, SlotOp]]] = {}
        for value, slot in self.copies_at_end:
            element, shape = slot.spec
            alone = 0 in shape or COMPUTE[element] != element or self.slot_of[value].layout is not None
            groups.setdefault(value if alone else element, []).append((value, slot))
        most = MOST_ADDRESSES // 2
        return [group[at : at + most] for group in groups.values() for at in range(0, len(group), most)]

    def copy(self, copies: Sequence[tuple[SSAValue, SlotOp]]) -> None:
        """Append a launch that copies the slots of values, each to another slot."""
        sources, destinations = [self.slot_of[value] for value, _ in copies], [slot for _, slot in copies]
        op, attrs = "copy", dict[str, AttributeValue]()
        if len(copies) > 1:
            op, compute = "multi_tensor_map", COMPUTE[destinations[0].spec[0]]
            body = self.selection.bodies.symbol(Body((compute,), (), (0,)), "copied")
            attrs = {"body": Symbol(body), "segments": len(copies)}
        inputs, outputs = ([slot.spec for slot in slots] for slots in (sources, destinations))
        counts = (len(inputs),), (len(outputs),)
        use = Use.of(op, inputs, outputs, attrs, counts if len(copies) > 1 else None)
        kernel_id, workspace = self.selection.select(use)
        symbol = self.table.symbols.numbered("k")
        launch = LaunchOp(
            symbol,
            kernel_id,
            op,
            [slot.symbol for slot in sources],
            [slot.symbol for slot in destinations],
            attrs,
            use.counts,
            workspace=self.scratch(symbol, workspace),
            predicate=None if self.status is None else self.status.symbol,
        )
        makers = [value.owner for value, _ in copies if isinstance(value.owner, Operation)]
        launch.location = common_location(makers) if makers else self.function.location
        self.launches.append(launch)


@dataclass(frozen=True)
class BufferizePass(ModulePass):
    """Replace every function by a plan.program: slots with roles and launches in order, without addresses."""

    name = "bufferize"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in list(op.ops):
            if isinstance(function, FuncOp):
                Rewriter.replace_op(function, Bufferizer(function).run(), new_results=[])
