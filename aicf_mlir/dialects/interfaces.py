"""What passes may ask of an op, whatever its dialect."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.ir import Operation, SSAValue
from xdsl.traits import OpTrait


class DifferentiableInterface(Operation, abc.ABC):
    """An op that owns its vector-Jacobian product."""

    @abc.abstractmethod
    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        """
        Emit the backward of this op and return one cotangent per operand, each of the operand's type.

        `cotangents` holds the gradient of the loss with respect to each result, of that result's type.
        `None` stands for an operand that no gradient flows into, such as class indices.
        """


@dataclass(frozen=True)
class NotDifferentiable(OpTrait):
    """Declares that an op has no vector-Jacobian product, and why; autodiff quotes the reason."""

    reason: str
