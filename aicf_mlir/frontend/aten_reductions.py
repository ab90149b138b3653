"""The rows of `aten_table` for reductions, softmax and normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.dialects.nn.reductions import REDUCTIONS
from aicf_mlir.frontend.call import AtenRule, Call, Value
from aicf_mlir.frontend.refused import Refused
from aicf_mlir.frontend.types import element_of
from aicf_mlir.ir.tensor_op import shape_of


def dims_of(call: Call, x: SSAValue) -> list[int]:
    """Return the argument `dim`, counted from the front and sorted; all dimensions without one."""
    rank = len(shape_of(x))
    given: int | Sequence[int] | None = call.arguments.get("dim")
    if given is None or given == []:
        return list(range(rank))
    listed = [given] if isinstance(given, int) else given
    return sorted({dim % rank for dim in listed}) if rank else []


def keeps(call: Call) -> bool:
    """The argument `keepdim`."""
    return bool(call.arguments.get("keepdim", False))


def total(op: type[nn.ReductionOp]) -> AtenRule:
    """A sum or a mean over `dim`, in the type of the result."""

    def row(call: Call) -> SSAValue:
        x = call.of(call["self"], call.expected.dtype)
        return call.emit.insert(op(x, dims_of(call, x), keeps(call)))

    return row


def reduction(name: str, of: torch.dtype | None = None) -> AtenRule:
    """A reduction of the table, of elements in the type of the result or in `of`."""
    op = REDUCTIONS[name]

    def row(call: Call) -> SSAValue:
        dtype = of or call.expected.dtype
        if element_of(dtype) not in op.TAKES:
            raise Refused(f"{name} of {call.named(dtype)}")
        x = call.of(call["self"], dtype)
        made = call.emit.insert(op(x, dims_of(call, x), keeps(call)))
        return call.emit.cast(made, call.expected.dtype)

    return row


def norm(call: Call) -> SSAValue:
    """The p-norm."""
    x = call.of(call["self"], call.expected.dtype)
    op = REDUCTIONS["vector_norm"](x, dims_of(call, x), keeps(call), ord=float(call["ord"]))
    return call.emit.insert(op)


def nansum(call: Call) -> SSAValue:
    """Return the sum of all elements that are not NaN."""
    x = call.of(call["self"], call.expected.dtype)
    if call.expected.dtype.is_floating_point:
        x = call.emit.insert(CLASSES["zero_nan"](x))
    return call.emit.insert(nn.SumOp(x, dims_of(call, x), keeps(call)))


def renorm(call: Call) -> SSAValue:
    """Limit the norm of slices along `dim` to `maxnorm`; no gradient flows through a norm that was not larger."""
    wide = call.wide_dtype
    x, axis = call.of(call["self"], wide), call["dim"] % len(call.shape)
    dims = [dim for dim in range(len(call.shape)) if dim != axis]
    most, one = call.of(float(call["maxnorm"]), wide), call.of(1.0, wide)

    def norm_of(x: SSAValue) -> SSAValue:
        return call.emit.insert(REDUCTIONS["vector_norm"](x, dims, True, ord=float(call["p"])))

    large = call.emit.insert(CLASSES["gt"](norm_of(call.emit.insert(nn.DetachOp(x))), most))
    norm = norm_of(call.emit.insert(CLASSES["where"](large, x, call.of(0.0, wide))))
    norm = call.emit.insert(CLASSES["add"](norm, call.of(1e-7, wide)))
    factor = call.emit.insert(CLASSES["where"](large, call.emit.insert(CLASSES["div"](most, norm)), one))
    factor = call.of(call.emit.cast(factor, call.dtype), wide)
    return call.emit.cast(call.emit.insert(CLASSES["mul"](x, factor)), call.dtype)


def distances(call: Call) -> SSAValue:
    """The p-norm of every row of x1 minus every row of x2."""
    dtype = call.expected.dtype
    x, y = call.of(call["x1"], dtype), call.of(call["x2"], dtype)
    *batch_x, rows, size = shape_of(x)
    *batch_y, columns, _ = shape_of(y)
    x = call.emit.reshape(x, (*batch_x, rows, 1, size))
    y = call.emit.reshape(y, (*batch_y, 1, columns, size))
    away = call.emit.insert(CLASSES["sub"](x, y))
    return call.emit.insert(REDUCTIONS["vector_norm"](away, [-1], False, ord=float(call["p"])))


def index_of(name: str) -> AtenRule:
    """The index of an extreme along one dimension, or of the tensor as a row."""

    def row(call: Call) -> SSAValue:
        x, keepdim = call.value("self"), keeps(call)
        if call["dim"] is None:
            flat = call.emit.reshape(x, (math.prod(shape_of(x)),))
            return call.emit.reshape(call.emit.insert(REDUCTIONS[name](flat, [0])), call.shape)
        return call.emit.insert(REDUCTIONS[name](x, dims_of(call, x), keepdim))

    return row


def with_index(op: type[nn.MaxWithIndexOp] | type[nn.MinWithIndexOp]) -> AtenRule:
    """Values and indices along a dimension."""

    def row(call: Call) -> Value:
        x = call.value("self")
        if not shape_of(x):
            zero = call.emit.constant(0, torch.int64)
            return x, zero
        dtype = call.expected[0].dtype
        numbers = call.emit.cast(x, torch.int32) if dtype is torch.bool else x
        made = op(numbers, dims_of(call, x)[0], keeps(call))
        call.emit.insert_all(made)
        made.values.name_hint, made.indices.name_hint = "values", "indices"
        return call.emit.cast(made.values, dtype), made.indices

    return row


def var_mean(*results: str) -> AtenRule:
    """Variance, deviation, mean or two of them over `dim`, or over everything where there is none."""

    def row(call: Call) -> Value:
        correction = call.arguments.get("correction", int(call.arguments.get("unbiased", True)))
        correction = 1 if correction is None else correction
        if correction < 0:
            raise Refused(f"correction={correction}, less than 0")
        x, rounded = call.of(call["self"], call.result_dtype), call.result_dtype
        if "deviation" in results:  # its square may exceed the range of half precision
            x = call.emit.cast(x, call.wide(rounded))
        made = nn.VarMeanOp(x, dims_of(call, x), correction, keeps(call))
        call.emit.insert_all(made)
        made.variance.name_hint, made.mean.name_hint = "variance", "mean"
        statistics: dict[str, SSAValue] = {"variance": made.variance, "mean": made.mean}
        if "deviation" in results:
            statistics["deviation"] = call.emit.insert(CLASSES["deviation"](made.variance))
            statistics = {name: call.emit.cast(statistics[name], rounded) for name in results}
        return statistics[results[0]] if len(results) == 1 else tuple(statistics[name] for name in results)

    return row


def along_dim(op: type[nn.SoftmaxOp] | type[nn.LogSoftmaxOp]) -> AtenRule:
    """Return the rule in the type of the result, along `dim`: it is swapped with the last dimension, and back."""

    def row(call: Call) -> SSAValue:
        perm = list(range(len(call.shape)))
        if perm:
            perm[call["dim"]], perm[-1] = perm[-1], perm[call["dim"]]
        x = call.emit.transpose(call.operand("self", call.dtype), perm)
        return call.emit.transpose(call.emit.insert(op(x)), perm)

    return row


def widest(call: Call, *arguments: str) -> torch.dtype:
    """Return the float type that holds these arguments, as far as they are given."""
    return call.promoted(*(call[name] for name in arguments if call.arguments.get(name) is not None))


def layer_norm(call: Call) -> Value:
    """Normalize over the last dimensions; the native op also returns mean and rstd."""
    dtype = widest(call, "input", "weight", "bias")
    x = call.of(call["input"], dtype)
    weight, bias = (None if call[each] is None else call.of(call[each], dtype) for each in ("weight", "bias"))
    if weight is None and bias is not None:
        weight = call.emit.constant(1.0, dtype, shape_of(bias))  # the sum is rounded once, as torch's
    made = nn.LayerNormOp(x, weight, bias, len(call["normalized_shape"]), float(call["eps"]))
    call.emit.insert_all(made)
    made.result.name_hint = call.emit.fresh("layer_norm")
    several = isinstance(call.expected, (tuple, list))
    expected: Any = call.expected if several else [call.expected]
    values = [call.emit.cast(value, like.dtype) for value, like in zip(made.results, expected, strict=False)]
    return tuple(values) if several else values[0]


def rms_norm(call: Call) -> SSAValue:
    """Normalize over the last dimensions; the default `eps` is that of torch's compute type, float32 for half precision."""
    dtype = widest(call, "input", "weight")
    x = call.of(call["input"], dtype)
    weight = None if call["weight"] is None else call.of(call["weight"], dtype)
    eps = torch.finfo(call.wide_dtype).eps if call["eps"] is None else call["eps"]
    made = nn.RmsNormOp(x, weight, len(call["normalized_shape"]), float(eps))
    call.emit.insert_all(made)
    made.result.name_hint = call.emit.fresh("rms_norm")
    return call.emit.cast(made.result, call.expected.dtype)


def groups_of(call: Call, groups: int) -> SSAValue:
    """x[N, C, d..] with a row for each group of channels."""
    shape = shape_of(call.value("input"))
    x = call.of(call["input"], widest(call, "input", "weight", "bias"))
    return call.emit.reshape(x, (shape[0], groups, math.prod(shape[1:]) // groups))


def of_groups(call: Call, groups: int) -> SSAValue:
    """x[N, C, d..] normalized in `groups` groups of channels, times weight and plus bias."""
    made = nn.LayerNormOp(groups_of(call, groups), None, None, 1, float(call["eps"]))
    call.emit.insert_all(made)
    y = call.emit.reshape(made.result, shape_of(call.value("input")))
    return affine(call, y, widest(call, "input", "weight", "bias"))


def group_statistics(call: Call, groups: int) -> Sequence[SSAValue]:
    """Mean and rstd of each group: by ops of their own, since torch has gradients through them."""
    wide = call.wide(widest(call, "input", "weight", "bias"))
    made = nn.VarMeanOp(call.emit.cast(groups_of(call, groups), wide), [2], 0.0)
    call.emit.insert_all(made)
    variance = call.emit.insert(CLASSES["add"](made.variance, call.of(call["eps"], wide)))
    return made.mean, call.emit.insert(CLASSES["rsqrt"](variance))


def affine(call: Call, y: SSAValue, dtype: torch.dtype) -> SSAValue:
    """Multiply by `weight` and add `bias`, if given: a number for each channel, the second dimension."""
    for name, op in (("weight", "mul"), ("bias", "add")):
        if call[name] is not None:
            rank = len(shape_of(y))
            channel = call.of(call[name], dtype)
            channel = call.emit.reshape(channel, (*shape_of(channel), *[1] * (rank - 2)))
            y = call.emit.insert(CLASSES[op](y, channel))
    return y


def group_norm(call: Call) -> Value:
    """Normalize over groups of channels; the native op also returns mean and rstd."""
    native = "num_groups" not in call.arguments
    groups: int = call["group" if native else "num_groups"]
    y = of_groups(call, groups)
    if not native:
        return call.emit.cast(y, call.expected.dtype)
    parts = (y, *group_statistics(call, groups))
    return tuple(call.emit.cast(value, like.dtype) for value, like in zip(parts, call.expected, strict=True))


def instance_norm(call: Call) -> SSAValue:
    """Normalize each channel of each sample; running statistics are left to torch's decomposition."""
    if not call["use_input_stats"] or call["running_mean"] is not None:
        raise Refused("instance normalisation with running statistics")
    channels = shape_of(call.value("input"))[1]
    return call.emit.cast(of_groups(call, channels), call.expected.dtype)


def batch_norm(call: Call) -> Value:
    """Normalize over all but the channels, the second dimension: by the statistics of the batch, or in evaluation the
    running ones if any.

    The results are y, the statistics of the batch, and for the training op the new running ones, through which no
    gradient flows. Half precision does not hold each variance, so float32 is used then, as in torch.
    """
    dtype = call.wide(widest(call, "input", "weight", "bias", "running_mean"))
    x = call.of(call["input"], dtype)
    shape = shape_of(x)
    channels = (1, shape[1], *[1] * (len(shape) - 2))
    running = [
        call.of(call[name], dtype) for name in ("running_mean", "running_var") if name in call.arguments
    ]
    if call.arguments.get("training", False) or not running:
        made = nn.VarMeanOp(x, [0, *range(2, len(shape))], 0.0, keepdim=True)
        call.emit.insert_all(made)
        mean, variance = made.mean, made.variance
        count = math.prod(shape) // shape[1]
        running = [
            moved(call, old, call.emit.reshape(new, shape[1:2]), scale, dtype)
            for old, new, scale in zip(
                running, (mean, variance), (1.0, count / max(count - 1, 1)), strict=bool(running)
            )
        ]
    else:
        mean, variance = (call.emit.reshape(value, channels) for value in running)
    eps = call.emit.constant(float(call["eps"]), dtype)
    rstd = call.emit.insert(CLASSES["rsqrt"](call.emit.insert(CLASSES["add"](variance, eps))))
    away = call.emit.insert(CLASSES["sub"](x, mean))
    y = affine(call, call.emit.insert(CLASSES["mul"](away, rstd)), dtype)
    statistics = [
        call.emit.insert(nn.DetachOp(call.emit.reshape(value, shape[1:2]))) for value in (mean, rstd)
    ]
    values = (y, *statistics, *running)
    return tuple(
        call.emit.cast(value, like.dtype) if like.numel() else torch.zeros(like.shape, device="cpu")
        for value, like in zip(values, call.expected, strict=False)
    )


def moved(call: Call, old: SSAValue, new: SSAValue, scale: float, dtype: torch.dtype) -> SSAValue:
    """(1 - momentum) * old + momentum * scale * new."""
    momentum = float(call["momentum"])
    kept, added = (call.emit.constant(number, dtype) for number in (1 - momentum, momentum * scale))
    new = call.emit.insert(nn.DetachOp(new))
    old = call.emit.insert(CLASSES["mul"](old, kept))
    return call.emit.insert(CLASSES["add"](old, call.emit.insert(CLASSES["mul"](new, added))))
