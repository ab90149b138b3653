"""Uses of memory: the launches that read each block, when, and the ones that may overwrite it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from math import prod

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, OpResult, SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import Selection
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.ir.layouts import shares_block

NEVER, AT_THE_END = -1, sys.maxsize


class LastUses:
    """The last read of every owner of memory, also through reshapes, views and parts of joins, which own none."""

    def __init__(self, function: FuncOp, selection: Selection):
        self._selection = selection
        self._owner: dict[SSAValue, SSAValue] = {}
        self._position: dict[Operation, int] = {}
        self._last_read: dict[SSAValue, int] = {}
        self._in_place: dict[Operation, Mapping[SSAValue, set[int]]] = {}
        for position, op in enumerate(function.body.block.ops):
            self._position[op] = position
            if not isinstance(op, (*kernel.VIEWS, ReturnOp)):
                for operand in op.operands:
                    self._last_read[self.owner_of(operand)] = position

    def owner_of(self, value: SSAValue) -> SSAValue:
        """The value whose memory `value` is, or is a part of."""
        if value not in self._owner:
            self._owner[value] = kernel.block_of(value)
        return self._owner[value]

    def keep(self, value: SSAValue) -> None:
        """Count a read of `value` at the end of the step."""
        self._last_read[self.owner_of(value)] = AT_THE_END

    def may_replace(self, result: OpResult, owner: SSAValue) -> bool:
        """True if `result` may be written to the memory of `owner`.

        It may if it fits, nothing reads that memory later, and its own op does not, or can work in place.
        """
        op = result.op
        (element, shape), (owner_element, owner_shape) = tensor_spec(result), tensor_spec(owner)
        if not isinstance(op, KernelOp) or element != owner_element or prod(shape) != prod(owner_shape):
            return False
        if shares_block(result.type):
            return False
        last = self._last_read.get(owner, NEVER)
        if last != self._position[op]:
            return last < self._position[op]
        if op not in self._in_place:
            self._in_place[op] = self._replaceable(op)
        return result.index in self._in_place[op].get(owner, ())

    def _replaceable(self, op: KernelOp) -> dict[SSAValue, set[int]]:
        """The results that may be written to the memory of each owner that `op` reads, perhaps more than once."""
        outputs: dict[int, set[int]] = {}
        for output, index in self._selection.in_place(op.use):
            outputs.setdefault(index, set()).add(output)
        found: dict[SSAValue, set[int]] = {}
        for index, operand in enumerate(op.operands):
            owner = self.owner_of(operand)
            allowed = set[int]() if shares_block(operand.type) else outputs.get(index, set[int]())
            found[owner] = found[owner] & allowed if owner in found else allowed
        return found
