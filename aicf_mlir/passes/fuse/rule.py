"""A rule of fusion: a pass over every function of a module, which the pass `fuse` runs in its place among the others."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.rewriter import Rewriter

from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.plan import LaunchOp
from aicf_mlir.dialects.scalar import Bodies, BodyOp
from aicf_mlir.ir.signature import return_op
from aicf_mlir.passes.fuse.constants import write_constants_first
from aicf_mlir.passes.target import TargetPass

SMALL_STEP = "aicf.small_step"
"""Marks a function for a GPU whose launches are so small that their number counts. `fuse-updates` writes it, and
`fuse-horizontal` takes it away.
"""


@dataclass(frozen=True)
class FusionRule(TargetPass):
    """A pass that writes some launches of a function as fewer or faster ones of the same meaning.

    Each is legal by itself and in any order: it never loses a value that something else uses.
    """

    DEVICES: ClassVar[Collection[str]] = ("cpu", "cuda")
    """Where the rule pays; on other devices it changes nothing."""

    @property
    def pays(self) -> bool:
        """True if the rule pays on this target."""
        return ("cpu" if self.is_cpu else "cuda") in self.DEVICES

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.pays:
            bodies = Bodies(op)
            for function in defined(op):
                self.fuse(function, bodies)
            drop_unread_bodies(op)

    @abstractmethod
    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        """Apply the rule to one function, whose bodies are `bodies`."""


def defined(module: ModuleOp) -> Iterator[FuncOp]:
    """The functions of a module that have a body, with their constants before everything: rules move launches."""
    for function in list(module.ops):
        if isinstance(function, FuncOp) and not function.is_declaration:
            return_op(function)  # refuses a region that is not one block
            write_constants_first(function.body.block)
            yield function


def mark_small(function: FuncOp) -> None:
    """Say that the launches of `function` are small."""
    function.attributes[SMALL_STEP] = UnitAttr()


def is_small(function: FuncOp) -> bool:
    """True if the launches of `function` are small."""
    return SMALL_STEP in function.attributes


def drop_unread_bodies(module: ModuleOp) -> None:
    """Erase the bodies that no launch names any more."""
    launches = [op for op in module.walk() if isinstance(op, GeneratedOp | LaunchOp)]
    named = {symbol for op in launches for symbol in op.bodies}
    for op in list(module.ops):
        if isinstance(op, BodyOp) and op.symbol not in named:
            Rewriter.erase_op(op)
