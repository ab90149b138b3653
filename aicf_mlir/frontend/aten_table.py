"""What each ATen op is in the nn dialect: one row an op.

An op that is not here, or whose row refuses its arguments, is decomposed by torch's own rule and tried again.
"""

from __future__ import annotations

from aicf_mlir.dialects import nn
from aicf_mlir.frontend.aten_rows import (
    binary,
    broadcast,
    broadcast_tensors,
    cast,
    cross_entropy,
    detach,
    dropout,
    full_like,
    gelu,
    identity,
    linear,
    matmul,
    matmul_plus,
    matrix_transpose,
    mse_loss,
    native_dropout,
    nothing,
    permute,
    power,
    reciprocal,
    reduction,
    reshaped,
    softmax,
    square,
    transpose,
    unary,
    var_mean,
)
from aicf_mlir.frontend.aten_slices import concat, narrow, select, sliced, split, stack, unbind
from aicf_mlir.frontend.aten_updates import batch_norm, copied, lerp
from aicf_mlir.frontend.call import Row


def rows(row: Row, *names: str) -> dict[str, Row]:
    """One row for several overloads."""
    return {f"aten.{name}": row for name in names}


TABLE: dict[str, Row] = {
    **rows(binary(nn.AddOp), "add.Tensor", "add.Scalar"),
    **rows(binary(nn.SubOp), "sub.Tensor", "sub.Scalar"),
    **rows(binary(nn.SubOp, swap=True), "rsub.Tensor", "rsub.Scalar"),
    **rows(binary(nn.MulOp), "mul.Tensor", "mul.Scalar"),
    **rows(binary(nn.DivOp), "div.Tensor", "div.Scalar"),
    **rows(unary(nn.NegOp), "neg.default"),
    **rows(unary(nn.ReluOp), "relu.default"),
    **rows(unary(nn.SiluOp), "silu.default"),
    **rows(unary(nn.TanhOp), "tanh.default"),
    **rows(unary(nn.SigmoidOp), "sigmoid.default"),
    **rows(gelu, "gelu.default"),
    **rows(softmax, "softmax.int", "_softmax.default"),
    **rows(power, "pow.Tensor_Scalar"),
    **rows(square, "square.default"),
    **rows(reciprocal, "reciprocal.default"),
    **rows(linear, "linear.default"),
    **rows(matmul, "matmul.default", "mm.default", "bmm.default"),
    **rows(matmul_plus("mat1", "mat2"), "addmm.default"),
    **rows(matmul_plus("batch1", "batch2"), "baddbmm.default"),
    **rows(matmul_plus("mat", "vec"), "addmv.default"),
    **rows(
        reshaped,
        *("view.default", "_unsafe_view.default", "reshape.default", "view_as.default"),
        *("flatten.using_ints", "unflatten.int", "unsqueeze.default"),
        *("squeeze.default", "squeeze.dim", "squeeze.dims"),
    ),
    **rows(transpose, "transpose.int", "mT.default"),
    **rows(matrix_transpose, "t.default", "numpy_T.default"),
    **rows(permute, "permute.default"),
    **rows(split, "split.Tensor", "split.sizes", "split_with_sizes.default"),
    **rows(split, "chunk.default", "tensor_split.sections", "tensor_split.indices"),
    **rows(unbind, "unbind.int"),
    **rows(sliced, "slice.Tensor"),
    **rows(select, "select.int"),
    **rows(narrow, "narrow.default"),
    **rows(concat, "cat.default"),
    **rows(stack, "stack.default"),
    **rows(broadcast, "expand.default", "expand_as.default", "broadcast_to.default"),
    **rows(broadcast_tensors, "broadcast_tensors.default"),
    **rows(reduction(nn.SumOp), "sum.default", "sum.dim_IntList"),
    **rows(reduction(nn.MeanOp), "mean.default", "mean.dim"),
    **rows(var_mean("variance"), "var.default", "var.dim", "var.correction"),
    **rows(var_mean("variance", "mean"), "var_mean.default", "var_mean.dim", "var_mean.correction"),
    **rows(cast, "_to_copy.default", "to.dtype"),
    **rows(
        identity,
        *("clone.default", "contiguous.default", "alias.default"),
        *("lift_fresh.default", "lift_fresh_copy.default"),
    ),
    **rows(detach, "detach.default"),
    **rows(copied, "copy.default"),
    **rows(batch_norm, "_native_batch_norm_legit_functional.default"),
    **rows(lerp, "lerp.Scalar"),
    **rows(dropout, "dropout.default"),
    **rows(native_dropout, "native_dropout.default"),
    **rows(mse_loss, "mse_loss.default"),
    **rows(cross_entropy, "cross_entropy_loss.default"),
    **rows(full_like(0), "zeros_like.default", "new_zeros.default", "zero.default"),
    **rows(full_like(1), "ones_like.default", "new_ones.default"),
    **rows(full_like(), "full_like.default", "new_full.default"),
    **rows(full_like(key="value"), "fill.Scalar"),
    **rows(nothing, "_assert_tensor_metadata.default"),
}
