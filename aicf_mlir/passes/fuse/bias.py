"""gemm, then bias_add: one gemm_epilogue.

Not where the product without the bias has another use: the fused launch does not produce it.
"""

from __future__ import annotations

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from aicf_mlir.dialects import kernel
from aicf_mlir.ir.locations import fused_location
from aicf_mlir.ir.tensor_op import shape_of
from aicf_mlir.passes.fuse.views import erase_dead_views, used_once, view_chain, viewed_as


class FuseBias(RewritePattern):
    """bias_add(gemm(a, b), bias) -> gemm_epilogue(a, b, bias), also through a reshape of the rows."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, kernel.BiasAddOp):
            return
        x, bias = op.operands
        chain = view_chain(x)
        gemm = chain[-1].owner
        if not isinstance(gemm, kernel.GemmOp) or not used_once(chain):
            return
        if shape_of(chain[-1])[-1] != shape_of(bias)[0]:
            return
        fused = kernel.GemmEpilogueOp.launch(
            {**gemm.ins, "bias": bias}, {"out": gemm.results[0].type}, **gemm.attrs
        )
        fused.location = fused_location(gemm, op)
        views, result = viewed_as(fused.results[0], op.results[0].type)
        rewriter.replace(op, [fused, *views], [result])
        erase_dead_views(chain, rewriter)
        rewriter.erase(gemm)
