"""Rules with a kernel of the runtime: one launch updates all parameters of a kind.

If such a rule has its formulas too, with the bits of the launch, the update may be the epilogue of the product that makes the
gradient instead (`passes/fuse/update.py`).
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.ir import Attribute, Operation, SSAValue

from aicf_mlir.ir.registry import Schema
from aicf_mlir.optimizers.advance import AdvanceOp, Array
from aicf_mlir.optimizers.op import LaunchedOp
from aicf_mlir.optimizers.rule import UpdateRule
from aicf_mlir.optimizers.slots import STEP

Bounded = Callable[[Array], Array]
"""The value in the type that a kernel computes in; a value out of its range becomes an infinity."""


@dataclass(frozen=True)
class LaunchedRule(UpdateRule):
    """The update of a parameter by one kind of optimizer, by a kernel of the runtime."""

    OP: ClassVar[type[LaunchedOp]]

    def advance(self, arguments: Mapping[str, SSAValue], element: Attribute) -> Operation:
        read = (*(row.beta for row in self.CORRECTIONS), *(row.pin for row in self.CORRECTIONS))
        return AdvanceOp(arguments[STEP], [arguments[name] for name in read])

    @classmethod
    def launch(cls) -> Schema:
        """The update of many tensors at once, as the runtime declares it."""
        return cls.OP.schema()

    @staticmethod
    @abc.abstractmethod
    def formula(*values: Any, bounded: Bounded, **named: Any) -> tuple[Array | None, ...]:
        """The results of the launch for one tensor, in NumPy; None for one that is not there.

        Its arguments are the present operands and the flags, by the names of the schema: scalars of the tensor's group; of a
        vector the tensor's element.
        """
