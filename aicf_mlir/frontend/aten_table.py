"""The form of each ATen op in the nn dialect: one row an op.

An op that is not here, or whose row refuses its arguments, is decomposed by torch's own rule and tried again.
"""

from __future__ import annotations

import torch

from aicf_mlir.dialects import nn
from aicf_mlir.frontend import (
    aten_embeddings,
    aten_groups,
    aten_indexing,
    aten_losses,
    aten_masked,
    aten_matrices,
    aten_memory,
    aten_pointwise,
    aten_random,
    aten_rearranging,
    aten_recurrent,
    aten_reductions,
    aten_running,
    aten_sampling,
    aten_scattered,
    aten_windows,
)
from aicf_mlir.frontend.across_ranks import (
    GATHER,
    ROWS,
    SUM,
    gather_of_ranks,
    rows_of_ranks,
    sum_of_ranks,
)
from aicf_mlir.frontend.aten_attention import attention, safe_softmax_row
from aicf_mlir.frontend.aten_indexing import refused
from aicf_mlir.frontend.aten_pointwise import SELU, logical, pointwise, scaled, whole, with_product
from aicf_mlir.frontend.aten_reductions import along_dim, index_of, reduction, total, var_mean, with_index
from aicf_mlir.frontend.aten_rows import (
    asserted,
    bilinear,
    broadcast,
    broadcast_tensors,
    cast,
    detach,
    full_like,
    identity,
    linear,
    matmul,
    matmul_plus,
    matrix_transpose,
    nothing,
    permute,
    reshaped,
    transpose,
)
from aicf_mlir.frontend.aten_slices import concat, narrow, select, split, stack, unbind
from aicf_mlir.frontend.aten_updates import copied, lerp, overwritten
from aicf_mlir.frontend.call import AtenRule
from aicf_mlir.frontend.complex_parts import MAGNITUDE


def rows(row: AtenRule, *names: str) -> dict[str, AtenRule]:
    """One row for several overloads."""
    return {f"aten.{name}": row for name in names}


def of_two(*names: str) -> tuple[str, ...]:
    """The overloads for tensors and numbers."""
    return tuple(f"{name}.{kind}" for name in names for kind in ("Tensor", "Scalar"))


OF_ONE = (
    *(
        "reciprocal",
        "sqrt",
        "rsqrt",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "erf",
        "erfc",
        "sinc",
    ),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("relu", "gelu", "silu", "sigmoid", "mish", "hardswish", "hardsigmoid", "hardtanh", "hardshrink"),
    *("leaky_relu", "elu", "celu", "softplus", "softshrink", "threshold", "neg", "abs", "sign"),
    "logit",
    *("isnan", "isinf", "isfinite", "bitwise_not"),
)
"""Ops of one tensor whose name and parameters in torch are the same as in their row."""

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

POINTWISE: dict[str, AtenRule] = {
    **{f"aten.{name}.default": pointwise(name) for name in OF_ONE},
    **{f"aten.{each}": pointwise(name) for name in COMPARISONS for each in of_two(name)},
    **rows(scaled("add"), *of_two("add")),
    **rows(scaled("sub"), *of_two("sub")),
    **rows(scaled("sub", swap=True), *of_two("rsub")),
    **rows(pointwise("mul"), *of_two("mul")),
    **rows(aten_pointwise.divided, *of_two("div"), "div.Tensor_mode", "div.Scalar_mode"),
    **rows(pointwise("floor_divide"), "floor_divide.default", "floor_divide.Scalar"),
    **rows(pointwise("fmod"), *of_two("fmod")),
    **rows(pointwise("remainder"), *of_two("remainder"), "remainder.Scalar_Tensor"),
    **rows(pointwise("maximum"), "maximum.default", "max.other"),
    **rows(pointwise("minimum"), "minimum.default", "min.other"),
    **rows(aten_pointwise.clamped, "clamp.Tensor", "clamp_min.Tensor", "clamp_max.Tensor"),
    **rows(aten_pointwise.bounded, "clamp.default", "clamp_min.default", "clamp_max.default"),
    **rows(aten_pointwise.power, "pow.Tensor_Scalar"),
    **rows(pointwise("pow", "self", "exponent"), "pow.Tensor_Tensor"),
    **rows(pointwise("scalar_pow", "exponent", base="self"), "pow.Scalar"),
    **rows(aten_pointwise.square, "square.default"),
    **rows(pointwise("atan2"), "atan2.default"),
    str(MAGNITUDE): pointwise("magnitude", "re", "im"),
    str(SUM): sum_of_ranks,
    str(GATHER): gather_of_ranks,
    str(ROWS): rows_of_ranks,
    **rows(pointwise("copysign"), *of_two("copysign")),
    **rows(pointwise("xlogy"), "xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other"),
    **rows(
        pointwise("xlog1py"),
        *(f"special_xlog1py.{kind}" for kind in ("default", "self_scalar", "other_scalar")),
    ),
    **rows(pointwise("logaddexp"), "logaddexp.default"),
    **rows(pointwise("entr"), "special_entr.default"),
    **rows(pointwise("sign"), "sgn.default"),
    **rows(whole("floor"), "floor.default"),
    **rows(whole("ceil"), "ceil.default"),
    **rows(whole("trunc"), "trunc.default", "fix.default"),
    **rows(whole("round"), "round.default", "round.decimals"),
    **rows(pointwise("where"), "where.self", "where.Scalar", "where.ScalarSelf", "where.ScalarOther"),
    **rows(aten_pointwise.masked_fill, "masked_fill.Scalar", "masked_fill.Tensor"),
    **rows(logical("bitwise_and"), "logical_and.default"),
    **rows(logical("bitwise_or"), "logical_or.default"),
    **rows(logical("bitwise_xor"), "logical_xor.default"),
    **rows(logical("bitwise_not"), "logical_not.default"),
    **rows(pointwise("bitwise_and"), *of_two("bitwise_and", "__and__")),
    **rows(pointwise("bitwise_or"), *of_two("bitwise_or", "__or__")),
    **rows(pointwise("bitwise_xor"), *of_two("bitwise_xor", "__xor__")),
    **rows(aten_pointwise.shifted(left=True), "__lshift__.Scalar", "bitwise_left_shift.Tensor_Scalar"),
    **rows(aten_pointwise.shifted(left=False), "__rshift__.Scalar", "bitwise_right_shift.Tensor_Scalar"),
    **rows(pointwise("hardtanh", min_val=0.0, max_val=6.0), "relu6.default"),
    **rows(pointwise("elu", **SELU), "selu.default"),
    **rows(aten_random.random_relu, "rrelu.default"),
    **rows(aten_pointwise.parametric_relu, "prelu.default", "_prelu_kernel.default"),
    **rows(pointwise("log_sigmoid"), "log_sigmoid.default"),
    **rows(aten_pointwise.log_sigmoid_forward, "log_sigmoid_forward.default"),
    **rows(with_product("mul"), "addcmul.default"),
    **rows(with_product("div"), "addcdiv.default"),
    **rows(
        aten_running.fake_quantize,
        "fake_quantize_per_tensor_affine.default",
        "fake_quantize_per_tensor_affine.tensor_qparams",
        "fake_quantize_per_channel_affine.default",
    ),
    **rows(aten_losses.binary_cross_entropy, "binary_cross_entropy.default"),
}

REDUCTIONS: dict[str, AtenRule] = {
    **rows(total(nn.SumOp), "sum.default", "sum.dim_IntList"),
    **rows(total(nn.MeanOp), "mean.default", "mean.dim"),
    **rows(reduction("prod"), "prod.default", "prod.dim_int"),
    **rows(reduction("amax"), "amax.default"),
    **rows(reduction("amin"), "amin.default"),
    **rows(reduction("max"), "max.default"),
    **rows(reduction("min"), "min.default"),
    **rows(with_index(nn.MaxWithIndexOp), "max.dim"),
    **rows(with_index(nn.MinWithIndexOp), "min.dim"),
    **rows(index_of("argmax"), "argmax.default"),
    **rows(index_of("argmin"), "argmin.default"),
    **rows(reduction("any", torch.bool), "any.default", "any.dim", "any.dims", "_is_any_true.default"),
    **rows(reduction("all", torch.bool), "all.default", "all.dim", "all.dims", "_is_all_true.default"),
    **rows(reduction("logsumexp"), "logsumexp.default"),
    **rows(aten_reductions.norm, "linalg_vector_norm.default"),
    **rows(aten_reductions.nansum, "nansum.default"),
    **rows(aten_reductions.renorm, "renorm.default"),
    **rows(aten_reductions.distances, "cdist.default", "_cdist_forward.default"),
    **rows(var_mean("variance"), "var.default", "var.dim", "var.correction"),
    **rows(var_mean("variance", "mean"), "var_mean.default", "var_mean.dim", "var_mean.correction"),
    **rows(var_mean("deviation"), "std.default", "std.dim", "std.correction"),
    **rows(var_mean("deviation", "mean"), "std_mean.default", "std_mean.dim", "std_mean.correction"),
    **rows(along_dim(nn.SoftmaxOp), "softmax.int", "_softmax.default"),
    **rows(along_dim(nn.LogSoftmaxOp), "log_softmax.int", "_log_softmax.default"),
    **rows(aten_reductions.layer_norm, "layer_norm.default", "native_layer_norm.default"),
    **rows(aten_reductions.rms_norm, "rms_norm.default"),
    **rows(aten_reductions.group_norm, "group_norm.default", "native_group_norm.default"),
    **rows(aten_reductions.instance_norm, "instance_norm.default"),
    **rows(
        aten_reductions.batch_norm,
        "_native_batch_norm_legit_functional.default",
        "_native_batch_norm_legit.no_stats",
        "_native_batch_norm_legit_no_training.default",
    ),
}

MATRICES: dict[str, AtenRule] = {
    **rows(aten_matrices.cholesky(False), "linalg_cholesky.default", "cholesky.default"),
    **rows(aten_matrices.cholesky(True), "linalg_cholesky_ex.default"),
    **rows(aten_matrices.solve_triangular, "linalg_solve_triangular.default"),
    **rows(aten_matrices.cholesky_solve, "cholesky_solve.default"),
    **rows(aten_matrices.cholesky_inverse, "cholesky_inverse.default"),
    **rows(aten_matrices.inverse("A", False), "linalg_inv.default"),
    **rows(aten_matrices.inverse("self", False), "inverse.default"),
    **rows(aten_matrices.inverse("A", True), "linalg_inv_ex.default"),
    **rows(aten_matrices.solve(False), "linalg_solve.default"),
    **rows(aten_matrices.solve(True), "linalg_solve_ex.default"),
    **rows(aten_matrices.determinant(aten_matrices.det, "A", "torch.linalg.det"), "linalg_det.default"),
    **rows(aten_matrices.determinant(aten_matrices.det, "self", "torch.det"), "det.default"),
    **rows(
        aten_matrices.determinant(aten_matrices.slogdet, "A", "torch.linalg.slogdet"),
        "linalg_slogdet.default",
    ),
    **rows(aten_matrices.determinant(aten_matrices.slogdet, "self", "torch.slogdet"), "slogdet.default"),
    **rows(aten_matrices.before(aten_matrices.solve(True), (0, None, None, 1)), "_linalg_solve_ex.default"),
    **rows(
        aten_matrices.before(
            aten_matrices.determinant(aten_matrices.det, "A", "torch.linalg.det"), (0, None, None)
        ),
        "_linalg_det.default",
    ),
    **rows(
        aten_matrices.before(
            aten_matrices.determinant(aten_matrices.slogdet, "A", "torch.linalg.slogdet"), (0, 1, None, None)
        ),
        "_linalg_slogdet.default",
    ),
    **rows(aten_matrices.determinant(aten_matrices.logdet, "self", "torch.logdet"), "logdet.default"),
}

INDEXING: dict[str, AtenRule] = {
    **rows(aten_embeddings.embedding, "embedding.default"),
    **rows(aten_embeddings.embedding_bag, "embedding_bag.padding_idx", "embedding_bag.default"),
    **rows(
        aten_embeddings.inner_embedding_bag, "_embedding_bag.default", "_embedding_bag_forward_only.default"
    ),
    **rows(aten_indexing.gather, "gather.default"),
    **rows(aten_indexing.index_select, "index_select.default"),
    **rows(aten_indexing.take, "take.default"),
    **rows(aten_memory.as_strided, "as_strided.default"),
    **rows(aten_indexing.take_along_dim, "take_along_dim.default"),
    **rows(aten_indexing.index, "index.Tensor", "_unsafe_index.Tensor"),
    **rows(aten_indexing.index_put, "index_put.default", "_unsafe_index_put.default"),
    **rows(aten_indexing.scatter, "scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce"),
    **rows(aten_indexing.scatter_add, "scatter_add.default"),
    **rows(aten_scattered.scatter_reduce, "scatter_reduce.two"),
    **rows(aten_scattered.index_reduce, "index_reduce.default"),
    **rows(aten_scattered.segment_reduce, "segment_reduce.default"),
    **rows(aten_indexing.index_add, "index_add.default"),
    **rows(aten_indexing.index_copy, "index_copy.default", "index_fill.int_Scalar", "index_fill.int_Tensor"),
    **rows(aten_indexing.slice_scatter, "slice_scatter.default"),
    **rows(aten_indexing.diagonal_scatter, "diagonal_scatter.default"),
    **rows(aten_indexing.one_hot, "one_hot.default"),
    **rows(aten_groups.histogram, "histc.default"),
    **rows(aten_groups.grouped_product, "_grouped_mm.default"),
    "transformers.grouped_mm_fallback.default": aten_groups.grouped_product,
    **rows(refused(aten_indexing.MASK), "masked_select.default", "nonzero.default"),
    **rows(aten_masked.masked_scatter, "masked_scatter.default"),
}

REARRANGING: dict[str, AtenRule] = {
    **rows(aten_rearranging.pad, "pad.default", "constant_pad_nd.default"),
    **{
        f"aten.{mode}_pad{rank}d.default": aten_rearranging.padded(word)
        for mode, word in (("reflection", "reflect"), ("replication", "replicate"))
        for rank in (1, 2, 3)
    },
    **rows(aten_rearranging.flip, "flip.default"),
    **rows(aten_rearranging.roll, "roll.default"),
    **rows(aten_rearranging.triangle(lower=True), "tril.default"),
    **rows(aten_rearranging.triangle(lower=False), "triu.default"),
    **rows(aten_rearranging.sliced, "slice.Tensor"),
    **rows(aten_rearranging.repeat, "repeat.default"),
    **rows(aten_rearranging.repeat_interleave, "repeat_interleave.self_int"),
    **rows(aten_rearranging.diagonal, "diagonal.default", "diagonal_copy.default"),
    **rows(aten_rearranging.unfold, "unfold.default", "unfold_copy.default"),
    **rows(aten_running.running_sum, "cumsum.default"),
    **rows(aten_running.running("prod"), "cumprod.default"),
    **rows(aten_running.running("logaddexp"), "logcumsumexp.default"),
    **rows(aten_running.running_extreme("argmax"), "cummax.default"),
    **rows(aten_running.running_extreme("argmin"), "cummin.default"),
    **rows(aten_rearranging.sort, "sort.default", "sort.stable"),
    **rows(aten_rearranging.argsort, "argsort.default", "argsort.stable"),
    **rows(aten_rearranging.topk, "topk.default"),
    **rows(aten_rearranging.kthvalue, "kthvalue.default"),
    **rows(aten_rearranging.median(ignores_nan=False), "median.default", "median.dim"),
    **rows(aten_rearranging.median(ignores_nan=True), "nanmedian.default", "nanmedian.dim"),
}

TABLE: dict[str, AtenRule] = {
    **POINTWISE,
    **REDUCTIONS,
    **MATRICES,
    **INDEXING,
    **REARRANGING,
    **aten_recurrent.ROWS,
    **aten_windows.ROWS,
    **aten_sampling.ROWS,
    **rows(attention, "scaled_dot_product_attention.default"),
    **rows(safe_softmax_row, "_safe_softmax.default"),
    **rows(linear, "linear.default"),
    **rows(bilinear, "bilinear.default"),
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
    **rows(select, "select.int"),
    **rows(narrow, "narrow.default"),
    **rows(concat, "cat.default"),
    **rows(stack, "stack.default"),
    **rows(broadcast, "expand.default", "expand_as.default", "broadcast_to.default"),
    **rows(broadcast_tensors, "broadcast_tensors.default"),
    **rows(cast, "_to_copy.default", "to.dtype"),
    **rows(
        identity,
        *("clone.default", "contiguous.default", "alias.default"),
        *("lift_fresh.default", "lift_fresh_copy.default"),
    ),
    **rows(detach, "detach.default"),
    **rows(overwritten(copied), "copy.default"),
    **rows(lerp, "lerp.Scalar"),
    **rows(aten_random.dropout, "dropout.default"),
    **rows(aten_random.native_dropout, "native_dropout.default"),
    **rows(aten_random.feature_dropout, "feature_dropout.default"),
    **rows(aten_random.alpha_dropout, "alpha_dropout.default"),
    **rows(aten_random.feature_alpha_dropout, "feature_alpha_dropout.default"),
    **rows(aten_random.uniform, "rand.default", "rand_like.default", "uniform.default"),
    **rows(aten_random.normal, "randn.default", "randn_like.default", "normal_functional.default"),
    **rows(aten_random.normal, "normal.float_float", "normal.Tensor_float", "normal.float_Tensor"),
    **rows(aten_random.normal, "normal.Tensor_Tensor"),
    **rows(aten_random.bernoulli, "bernoulli.default", "bernoulli.p"),
    **rows(aten_random.randint, "randint.default", "randint.low"),
    **rows(aten_random.randint, "randint_like.default", "randint_like.low_dtype"),
    **rows(aten_random.randperm, "randperm.default"),
    **rows(aten_random.exponential, "exponential.default"),
    **rows(aten_losses.of_difference("huber", "delta"), "huber_loss.default"),
    **rows(aten_losses.of_difference("smooth_l1", "beta"), "smooth_l1_loss.default"),
    **rows(aten_losses.multi_margin, "multi_margin_loss.default"),
    **rows(aten_losses.multilabel_margin, "multilabel_margin_loss.default"),
    **rows(aten_losses.nll_loss, "nll_loss_forward.default", "nll_loss2d_forward.default"),
    **rows(aten_losses.mse_loss, "mse_loss.default"),
    **rows(aten_losses.cross_entropy, "cross_entropy_loss.default"),
    **rows(full_like(0), "zeros_like.default", "new_zeros.default"),
    **rows(overwritten(full_like(0)), "zero.default"),
    **rows(full_like(1), "ones_like.default", "new_ones.default"),
    **rows(full_like(), "full_like.default", "new_full.default"),
    **rows(overwritten(full_like(key="value")), "fill.Scalar"),
    **rows(nothing, "_assert_tensor_metadata.default"),
    **rows(asserted, "_assert_async.default", "_assert_async.msg"),
}
