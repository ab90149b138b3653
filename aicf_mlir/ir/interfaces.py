"""Interfaces by which passes query an op of any dialect."""

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


class DifferentiableInPartsInterface(DifferentiableInterface, abc.ABC):
    """An op with several results, only some of which may reach the loss."""

    @abc.abstractmethod
    def vjp_in_parts(
        self, builder: Builder, cotangents: Sequence[SSAValue | None]
    ) -> Sequence[SSAValue | None]:
        """The gradient as in `vjp`; None stands for a result that the loss does not depend on. At least one is not None."""

    @property
    def without_gradient(self) -> Sequence[SSAValue]:
        """Results that a gradient does not flow through, in addition to results that are no floats."""
        return ()

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return self.vjp_in_parts(builder, cotangents)


class DecomposableInterface(Operation, abc.ABC):
    """An op that can be written by others: it needs no launch of its own."""

    @abc.abstractmethod
    def decompose(self, builder: Builder, target: str) -> Sequence[SSAValue]:
        """
        Emit ops that compute the same and return a value for each result, of its type.

        The ops must have launches on `target`, or be decomposable themselves.
        """


class UnfoldableInterface(Operation, abc.ABC):
    """An op without a vector-Jacobian product, mostly a gradient: where it is differentiated, ops that have one are written."""

    @abc.abstractmethod
    def unfold(self, builder: Builder) -> Sequence[SSAValue]:
        """Emit ops that compute the same, and can be differentiated or unfolded; return a value for each result, of its type."""


@dataclass(frozen=True)
class NotDifferentiable(OpTrait):
    """Declares that an op has no vector-Jacobian product, and why; autodiff quotes the reason."""

    reason: str
