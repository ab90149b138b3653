"""The interface of an op that becomes one generated kernel: a body of scalar operations, and a box to run it over."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence

from xdsl.ir import Operation, SSAValue

from aicf_mlir.ir.body import COMPUTE, Body, table_type
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.expect import broadcast_shapes
from aicf_mlir.ir.tensor_op import element_type, shape_of

Argument = tuple[SSAValue, Sequence[int] | None]
"""An operand, and for each of its dimensions the one of the domain that it is; None for a table."""


class GeneratedInterface(Operation, abc.ABC):
    """An op that is one kernel.map, or with `reduced_dims` one kernel.rowwise or kernel.colwise.

    Its operands, each repeated to `domain`, are the `arguments` of `body`, in their compute types; `scalar.index` counts in the
    dimensions of `domain`. A result is one of the `whole_results`, with as many elements as the domain, or has the dimensions of
    the domain without its `reduced_dims`. The type of the result tells which of these stay as dimensions of size 1. If the
    `reduced_dims` are neither the last nor the first dimensions, the kernel runs over another order of all of them.
    """

    @abc.abstractmethod
    def body(self) -> Body:
        """The computation of one point."""

    @property
    def domain(self) -> tuple[int, ...]:
        """The box: by default the shapes of the operands together."""
        return broadcast_shapes(*(shape_of(operand) for operand in self.operands))

    @property
    def reduced_dims(self) -> tuple[int, ...]:
        """The dimensions of `domain` that the reductions of the body run over, sorted; none in a map."""
        return ()

    @property
    def whole_results(self) -> tuple[bool, ...]:
        """For each result, True if it has the shape of the domain; the others are without the reduced dimensions."""
        return (True,) * len(self.results)

    @property
    def arguments(self) -> Sequence[Argument]:
        """The arguments of the body: by default each operand once, from the last dimension of the domain on."""
        rank = len(self.domain)
        return [(operand, range(rank - len(shape_of(operand)), rank)) for operand in self.operands]

    @property
    def picked(self) -> Mapping[int, int]:
        """The arguments that are one element of a vector, by number: which. They have no dimension of the domain."""
        return {}

    @property
    def title(self) -> str:
        """The name of the body."""
        return self.name.rpartition(".")[2]

    @property
    def compute_types(self) -> tuple[str, ...]:
        """The types of the arguments in the body."""
        return tuple(
            table_type(element_name(element_type(value)), len(shape_of(value)))
            if dims is None
            else COMPUTE[element_name(element_type(value))]
            for value, dims in self.arguments
        )
