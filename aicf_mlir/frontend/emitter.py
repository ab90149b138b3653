"""Appends nn ops to a block, each at the user's line; casts and reshapes that change nothing are left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from xdsl.dialects.builtin import AnyFloat, TensorType
from xdsl.ir import Attribute, Block, BlockArgument, OpResult, Region, SSAValue

from aicf_mlir import _C
from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.train import YieldOp
from aicf_mlir.frontend.refused import Refused
from aicf_mlir.frontend.types import ELEMENT_TYPES
from aicf_mlir.ir.locations import SourceLocation, location_attribute
from aicf_mlir.ir.tensor_op import TensorOp, element_type, shape_of

GRADIENT_LEAVES = "a gradient leaves the backward of the autograd function that it arrives in"


class Emitter:
    """Writes to the end of `block`; `location` is given to every op that follows.

    `first_status` makes the status that the first check takes, `first_random` makes the source of random numbers.
    """

    def __init__(
        self, block: Block, first_status: Callable[[], SSAValue], first_random: Callable[[], SSAValue]
    ):
        self._block = block
        self._open: list[Block] = []
        """The regions that are being written."""
        self.location: SourceLocation | None = None
        self.status: SSAValue | None = None
        """The result of the checks up to here; None before the first."""
        self._first_status = first_status
        self.random: SSAValue | None = None
        """The source of random numbers; None before the first draw."""
        self._first_random = first_random
        self._sites = 0
        self._checks = 0
        self.checked: dict[tuple[SSAValue, int, bool], SSAValue] = {}
        """The checked index by the unchecked index, the indexed size, and True if negative ones wrap."""
        self.known: dict[SSAValue, torch.Tensor] = {}
        """The tensors known while tracing that have become values."""
        self.masks: dict[tuple[int, int, int], tuple[torch.Tensor, object]] = {}
        """What known masks show, by the id of the tensor, queries and keys; the tensor is kept, so that no other has its id."""
        self._names: dict[str, int] = {}

    def insert(self, op: ValueOp) -> SSAValue:
        """Append `op` and return its result, named after the op: linear, linear1, …

        The name is not linear_1: xDSL treats that ending as its own and drops it. Then %dlinear_1 would not be the
        gradient of %linear_1.
        """
        self.insert_all(op)
        op.result.name_hint = self.fresh(op.name.rpartition(".")[2])
        return op.result

    def fresh(self, name: str) -> str:
        """Return `name` the first time, then with a number."""
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return f"{name}{count or ''}"

    def insert_all(self, op: TensorOp) -> Sequence[SSAValue]:
        """Append `op` and return its results."""
        for value in (*op.operands, *op.results):
            if len(shape_of(value)) > _C.MAX_RANK and not isinstance(op, nn.ReshapeOp):
                raise Refused(f"{len(shape_of(value))} dimensions; supported are at most {_C.MAX_RANK}")
        op.location = location_attribute(self.location)
        self._place_of(op).add_op(op)
        return op.results

    def _place_of(self, op: TensorOp) -> Block:
        """Return the block of an op: the innermost region that one of its operands belongs to, else the main block."""
        regions = {block for value in op.operands if (block := block_of(value)) is not self._block}
        if not regions:
            return self._block
        if not regions <= set(self._open):
            raise Refused(GRADIENT_LEAVES)
        return next(region for region in reversed(self._open) if region in regions)

    def arriving(self, region: Block, type: Attribute) -> SSAValue:
        """Return a gradient that arrives in `region`: ops on it are placed there."""
        self._open += [] if region in self._open else [region]
        value = region.insert_arg(type, len(region.args))
        value.name_hint = self.fresh("arriving")
        return value

    def custom_gradient(
        self, of: Sequence[SSAValue], wrt: Sequence[SSAValue], region: Block, leaving: Sequence[SSAValue]
    ) -> Sequence[SSAValue]:
        """Return values whose gradients are the values that leave a region, and end the region."""
        self._open.remove(region)
        region.add_op(YieldOp(leaving))
        values = self.insert_all(nn.CustomGradientOp(of, wrt, Region(region)))
        for value in values:
            value.name_hint = self.fresh("custom_gradient")
        return values

    def is_inside(self, value: SSAValue) -> bool:
        """True if a value belongs to a region."""
        return block_of(value) is not self._block

    def constant(self, value: float, dtype: torch.dtype, shape: Sequence[int] = ()) -> SSAValue:
        """Return `value` in each element of a tensor of `dtype`; infinite if it is beyond the range of a float, as in
        torch.
        """
        number = float(value)
        if dtype.is_floating_point:
            rounded = torch.tensor(number, dtype=dtype, device="cpu").item()
            number = rounded if math.isinf(rounded) else number
        return self.insert(nn.ConstantOp(number, tensor_type(shape, dtype)))

    def depending(self, result: SSAValue, *values: SSAValue) -> SSAValue:
        """Return `result` as it is, of whose operands no element is read; floats of its type among them have a gradient all the
        same. It is zeros: an optimizer decays these parameters, and moves them by their momentum.
        """
        for value in values:
            if element_type(value) != element_type(result) or not isinstance(element_type(value), AnyFloat):
                continue
            count = math.prod(shape_of(value))
            flat = self.reshape(value, (count,))
            none = self.split(flat, 0, (0, count))[0] if count else flat
            result = self.insert(nn.SubOp(result, self.insert(nn.SumOp(none, [0]))))
        return result

    def check_index(self, target: SSAValue, classes: int, ignore_index: int | None) -> None:
        """Check that every index is in 0..classes-1 or equals `ignore_index`; otherwise the step updates nothing."""
        before = self._next_check(target)
        self.status = self.insert(nn.CheckIndexOp(before, target, classes, self._checks, ignore_index))

    def check_value(self, x: SSAValue, rule: str, of: str) -> None:
        """Check that `rule` accepts each element of x; otherwise the step updates nothing. `of` is the user's function
        with this rule.
        """
        if not math.prod(shape_of(x)):
            return
        before = self._next_check(x)
        self.status = self.insert(nn.CheckValueOp(before, x, rule, of, self._checks))

    def _next_check(self, checked: SSAValue) -> SSAValue:
        """Return the status that the next check takes."""
        if self.is_inside(checked):
            raise Refused("a check of the values of a gradient")
        self._checks += 1
        return self._first_status() if self.status is None else self.status

    def draw(self) -> tuple[SSAValue, int]:
        """Return the operands of a random op: [seed, steps taken], and a site of its own."""
        if self.random is None:
            self.random = self._first_random()
        self._sites += 1
        return self.random, self._sites - 1

    def cast(self, value: SSAValue, dtype: torch.dtype) -> SSAValue:
        """`value` in the type `dtype`."""
        if (wanted := ELEMENT_TYPES.get(dtype)) is None:
            raise Refused(f"a conversion to {str(dtype).removeprefix('torch.')}")
        return value if element_type(value) == wanted else self.insert(nn.CastOp(value, wanted))

    def reshape(self, value: SSAValue, shape: Sequence[int]) -> SSAValue:
        """`value` in another shape of as many elements."""
        return value if shape_of(value) == tuple(shape) else self.insert(nn.ReshapeOp(value, shape))

    def broadcast(self, value: SSAValue, shape: Sequence[int]) -> SSAValue:
        """`value` repeated to `shape` by NumPy's rules."""
        return value if shape_of(value) == tuple(shape) else self.insert(nn.BroadcastToOp(value, shape))

    def split(self, value: SSAValue, dim: int, sizes: Sequence[int]) -> Sequence[SSAValue]:
        """`value` cut along `dim` into parts of `sizes`."""
        if len(sizes) == 1:
            return [value]
        parts = self.insert_all(nn.SplitOp(value, dim, sizes))
        for i, part in enumerate(parts):
            part.name_hint = self.fresh(f"part{i}")
        return parts

    def transpose(self, value: SSAValue, perm: Sequence[int]) -> SSAValue:
        """`value` with dimension i taken from dimension perm[i]."""
        return value if list(perm) == sorted(perm) else self.insert(nn.TransposeOp(value, perm))


def block_of(value: SSAValue) -> Block:
    """The block that defines a value."""
    return cast(Block, value.op.parent if isinstance(value, OpResult) else cast(BlockArgument, value).block)


def tensor_type(shape: Sequence[int], dtype: torch.dtype) -> TensorType[Attribute]:
    """The IR type of a tensor; `dtype` must be supported."""
    return TensorType(ELEMENT_TYPES[dtype], [int(size) for size in shape])
