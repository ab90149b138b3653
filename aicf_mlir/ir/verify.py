"""All rules that hold between passes: those that xDSL's `verify` checks, and those that it does not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from time import perf_counter
from typing import ClassVar, NoReturn

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.traits import IsolatedFromAbove
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.signature import verify_signature
from aicf_mlir.ir.tensor_op import TensorOp


def verify_module(module: ModuleOp) -> None:
    """
    Check every op, the dominance of definitions over uses, and the labels of every function.

    Raises VerifyException, with the op in question marked in its notes.
    """
    module.verify()
    verify_dominance(module)
    for op in module.walk():
        if isinstance(op, func.FuncOp):
            verify_labels(op)


def verify_labels(function: func.FuncOp) -> None:
    """Verify as `verify_signature`, with the function marked."""
    try:
        verify_signature(function)
    except VerifyException as error:
        function.emit_error(str(error), error)


Parts = tuple[Operation, *tuple[object, ...]]
"""The parts of one op that verification looks at: ops, blocks and values by identity, types and attributes by value."""

Form = tuple[object, ...]
"""The content of an op, independent of its values."""


class Verifier:
    """Verifies a module between passes: the ops that have changed since this last found nothing to refuse.

    The verified ops are each op with other parts than before, each op around it, and, if the module has changed at all, the ops
    that may look at others, such as a terminator. If only the form of an op counts (`TensorOp.is_verified_by_form`), one op of
    each form is verified. Uses are always compared with definitions. The first call begins with nothing known.
    """

    WHOLE: ClassVar[bool] = False
    """True if verifiers look at every op of a changed module. Some tests do: no fault of a pass depends on the rule above."""

    def __init__(self, whole: bool | None = None) -> None:
        """`whole` is `WHOLE` by default. Nothing is known at the start."""
        self.seconds = 0.0
        """Wall time of all calls."""
        self._whole = self.WHOLE if whole is None else whole
        self._parts: dict[int, Parts] = {}
        self._forms: set[Form] = set()

    def forget(self) -> None:
        """Begin with nothing known: the next call verifies everything."""
        self._parts.clear()
        self._forms.clear()

    def __call__(self, module: ModuleOp) -> None:
        """Raise as `verify_module` does."""
        start = perf_counter()
        try:
            now = {id(op): parts_of(op) for op in module.walk()}  # the parts keep the op, and its id, alive
            touched = self._touched(now)
            if touched and self._whole:
                verify_module(module)
            elif touched:
                self._verify(module, touched)
                verify_dominance(module)
            self._parts = now
        finally:
            self.seconds += perf_counter() - start

    def _touched(self, now: Mapping[int, Parts]) -> set[int]:
        """The ids of the ops that have changed, and of those around them."""
        touched: set[int] = set()
        for number, parts in now.items():
            if self._parts.get(number) == parts:
                continue
            around: Operation | None = parts[0]
            while around is not None and id(around) not in touched:
                touched.add(id(around))
                around = around.parent_op()
        return touched

    def _verify(self, op: Operation, touched: Collection[int]) -> None:
        """Verify `op` and its contents, as far as needed."""
        changed = id(op) in touched
        if not changed and op.regions and op.has_trait(IsolatedFromAbove):
            return
        for region in op.regions:
            for block in region.blocks:
                if block.parent is not region or block.first_op is None:
                    region.verify()
                for inner in block.ops:
                    if inner.parent is not block:
                        block.verify()
                    self._verify(inner, touched)
        if is_verified_by_form(op) and op.next_op is not None:
            if changed and (form := form_of(op)) not in self._forms:
                op.verify(verify_nested_ops=False)
                self._forms.add(form)
        elif changed or op.operands or op.results or op.next_op is None:
            op.verify(verify_nested_ops=False)
            if isinstance(op, func.FuncOp) and (form := form_of(op)) not in self._forms:
                verify_labels(op)  # which are properties
                self._forms.add(form)


BODY_DIALECTS = ("arith", "math", "scalar")
"""The dialects whose computations are specified by types and properties alone. The body verifies their context."""


def is_verified_by_form(op: Operation) -> bool:
    """True if verification of `op` looks only at its form."""
    if isinstance(op, TensorOp):
        return op.is_verified_by_form()
    return not op.regions and op.dialect_name() in BODY_DIALECTS


def form_of(op: Operation) -> Form:
    """The form of `op`, independent of its values: class, types, properties and attributes."""
    texts = (*op.properties.items(), None, *op.attributes.items())
    return (type(op), tuple(op.operand_types), tuple(op.result_types), *texts)


def parts_of(op: Operation) -> Parts:
    """Ops with equal parts verify alike among the same ops. Names and locations are left out."""
    operands, results = tuple(op.operands), op.results
    blocks = tuple(
        (region, block, block.args, block.arg_types, *block.ops)
        for region in op.regions
        for block in region.blocks
    )
    return (
        op,
        operands,
        [value.type for value in operands],
        results,
        [value.type for value in results],
        op.properties.copy(),
        op.attributes.copy(),
        op.successors,
        blocks,
    )


def verify_dominance(module: ModuleOp) -> None:
    """
    Check that every operand is defined before its use, in the same block or in one around it.

    Regions here have one block; of several, each sees the values of the blocks written above it.
    """
    seen: set[SSAValue] = set()

    def visit(block: Block) -> None:
        seen.update(block.args)
        for op in block.ops:
            for operand in op.operands:
                if operand not in seen:
                    refuse(op, operand)
            for region in op.regions:
                for inner in region.blocks:
                    visit(inner)
            seen.update(op.results)

    visit(module.body.block)


def refuse(op: Operation, operand: SSAValue) -> NoReturn:
    """Report a use that no definition comes before."""
    name = f"%{operand.name_hint}" if operand.name_hint else "a value"
    definition = f"'{operand.op.name}' defines it" if isinstance(operand, OpResult) else "it is defined"
    message = f"'{op.name}' uses {name} before {definition}"
    op.emit_error(message, VerifyException(message))
