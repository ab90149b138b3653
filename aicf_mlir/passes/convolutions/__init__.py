"""Convolutions by a library of the target, their images channels last; by products over windows where there is none."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from aicf_mlir.dialects.nn.convolutions import ConvolvingOp
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir import registry
from aicf_mlir.ir.properties import is_true
from aicf_mlir.passes.convolutions.channels_last import ChannelsLast
from aicf_mlir.passes.convolutions.expansion import Expansion
from aicf_mlir.passes.lower.same import lower_as_it_stands


@dataclass(frozen=True)
class ConvolutionsPass(ModulePass):
    """Lay images out channels last where a library of the target convolves them; write other convolutions as products."""

    name = "convolutions"

    target: str = "cpu"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not any(isinstance(inner, ConvolvingOp) for inner in op.walk()):
            return
        for function in op.walk():
            if isinstance(function, FuncOp) and "+" in self.target:
                for block in function.body.blocks:
                    ChannelsLast(self.runs).apply(block)
        expansion = Expansion()
        for inner in list(op.walk()):
            if isinstance(inner, ConvolvingOp) and not (is_true(inner.channels_last) and self.runs(inner)):
                Rewriter.replace_op(inner, [], [expansion.of(inner)])

    def runs(self, op: ConvolvingOp) -> bool:
        """True if a kernel of a library takes it."""
        (launch,) = lower_as_it_stands(op)
        try:
            kernel = registry.select_kernel(launch.use, self.target)[0]
        except SelectionError:
            return False
        finally:
            launch.erase()
        return any(row["name"] == kernel and row["library"] for row in registry.kernels_of(launch.op_name))
