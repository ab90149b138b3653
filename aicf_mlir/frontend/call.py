"""One node of the graph as a row of the table sees it: its arguments by name, and a place to emit ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.shape import MOST_EXACT
from aicf_mlir.frontend.emitter import Emitter
from aicf_mlir.frontend.refused import Forbidden, Refused
from aicf_mlir.frontend.types import ELEMENT_TYPES
from aicf_mlir.ir.tensor_op import element_type, shape_of

Value: TypeAlias = SSAValue | torch.Tensor | tuple["Value", ...] | None
"""The meaning of a node: a value of the step, a tensor known while tracing, nothing, or several of these."""


@dataclass(frozen=True)
class Call:
    """A call of an ATen op whose tensor arguments are already values of the nn dialect."""

    arguments: dict[str, Any]
    """The arguments by the name in the op's schema, defaults included."""
    expected: Any
    """The result of the call, as tensors without data."""
    emit: Emitter
    materialize: Callable[[torch.Tensor], SSAValue]
    """Turns a tensor known while tracing into a value."""
    device: torch.device
    """The device of the step."""
    carriers: Sequence[Value]
    """The arguments that a trained parameter reaches."""
    is_forward: bool = True
    """False after a body has called backward or written a parameter: torch records no write of these."""

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    @property
    def carries_gradient(self) -> bool:
        """True if a trained parameter reaches this call."""
        return bool(self.carriers)

    def needs_gradient(self, name: str) -> bool:
        """True if a trained parameter reaches the tensor argument `name`."""
        return any(each is self.arguments[name] for each in self.carriers)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the one result."""
        return tuple(self.expected.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the one result. Refuses a dtype that is not floating-point."""
        return self.result_dtype

    @property
    def result_dtype(self) -> torch.dtype:
        """The dtype of the result, or of the first of several. Refuses a dtype that is not floating-point."""
        several: bool = type(self.expected) in (tuple, list)
        dtype: torch.dtype = (self.expected[0] if several else self.expected).dtype
        if not dtype.is_floating_point:
            raise Refused(f"arithmetic on {str(dtype).removeprefix('torch.')}")
        return dtype

    def value(self, name: str) -> SSAValue:
        """Return the tensor argument `name` unchanged."""
        return self._value(self.arguments[name])

    def values(self, name: str) -> Sequence[SSAValue]:
        """The list of tensors `name`."""
        return [self._value(item) for item in self.arguments[name]]

    @property
    def wide_dtype(self) -> torch.dtype:
        """The dtype in which torch computes before it rounds once to the result: float32 for half precision."""
        return self.wide(self.expected.dtype)

    @staticmethod
    def wide(dtype: torch.dtype) -> torch.dtype:
        """Return float32 for half precision."""
        return torch.float32 if dtype.is_floating_point and dtype.itemsize == 2 else dtype

    def promoted(self, *values: Any) -> torch.dtype:
        """Return the dtype in which torch computes with these tensors and numbers."""
        like = [self._like(value) for value in values]
        dtype = torch.result_type(like[0], like[1] if len(like) > 1 else like[0])
        for value in like[2:]:
            dtype = torch.promote_types(dtype, value.dtype)
        return dtype

    @staticmethod
    def _like(value: Any) -> Any:
        """A tensor without data, or the number."""
        if not isinstance(value, SSAValue):
            return value
        tensor = cast(SSAValue, value)
        dtype = next(each for each, type_ in ELEMENT_TYPES.items() if type_ == element_type(tensor))
        return torch.empty(shape_of(tensor), dtype=dtype, device="meta")

    @staticmethod
    def named(dtype: torch.dtype) -> str:
        """Return a dtype's name for messages."""
        return str(dtype).removeprefix("torch.")

    @staticmethod
    def holds(value: Any, dtype: torch.dtype) -> bool:
        """True if it is a tensor, or a number that a float dtype holds exactly; for a wider 0-d tensor this is unknown."""
        if isinstance(value, SSAValue):
            tensor = cast(SSAValue, value)
            own = next(each for each, type_ in ELEMENT_TYPES.items() if type_ == element_type(tensor))
            return bool(shape_of(tensor)) or own.itemsize <= dtype.itemsize
        return (
            not isinstance(value, (int, float))
            or torch.tensor(value, dtype=dtype, device="cpu").item() == value
        )

    def of(self, value: Any, dtype: torch.dtype) -> SSAValue:
        """A tensor or a number in a dtype."""
        if dtype not in ELEMENT_TYPES:
            raise Refused(f"arithmetic on {self.named(dtype)}")
        if isinstance(value, (bool, int, float)):
            if not dtype.is_floating_point and abs(value) > MOST_EXACT:
                raise Forbidden(f"the number {value} in arithmetic on {self.named(dtype)}: more than 2^53")
            return self.emit.constant(value, dtype)
        return self.emit.cast(self._value(value), dtype)

    def reduced(self, loss: SSAValue, reduction: int) -> SSAValue:
        """Reduce a loss by torch's numbering: none, the mean, the sum."""
        return loss if reduction == 0 else self.emit.insert((nn.MeanOp if reduction == 1 else nn.SumOp)(loss))

    def number(self, name: str, dtype: torch.dtype) -> Any:
        """Return the number `name`, or the 0-d value of one; refused, as by torch, if it is beyond the range of `dtype`."""
        number = self.arguments[name]
        if isinstance(number, SSAValue):
            return cast(SSAValue, number)
        if math.isfinite(number) and not math.isfinite(
            torch.tensor(float(number), dtype=dtype, device="cpu").item()
        ):
            kind = str(dtype).removeprefix("torch.")
            raise Forbidden(f"{name}={number:g} is beyond the range of {kind}")
        return number

    def operand(self, name: str, dtype: torch.dtype) -> SSAValue:
        """The tensor or number `name` in a dtype."""
        return self.of(self.arguments[name], dtype)

    def _value(self, argument: object) -> SSAValue:
        if isinstance(argument, SSAValue):
            return cast(SSAValue, argument)
        if isinstance(argument, torch.Tensor):
            return self.materialize(argument)
        raise Refused(f"an argument {argument!r}")


AtenRule: TypeAlias = Callable[[Call], Value]
"""A function that emits the nn ops of one ATen op and returns its value."""
