"""What each kernel op computes, in NumPy: the truth that passes, kernels and devices must agree with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.interpreter import Interpreter, PythonValues, impl, register_impls

from aicf_mlir.dialects.attributes import AttributeValue
from aicf_mlir.dialects.kernel import LAUNCHES, ConstantOp, ReshapeOp
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.interpreters import checks, losses, updates
from aicf_mlir.interpreters.activations import ACTIVATIONS, DERIVATIVES
from aicf_mlir.interpreters.arithmetic import ROUNDED, Arithmetic
from aicf_mlir.interpreters.numerics import NUMPY_TYPES, Array
from aicf_mlir.interpreters.runner import ArithmeticFunctions

TensorSpec = tuple[str, tuple[int, ...]]
"""Element type and shape."""


@dataclass(frozen=True)
class Call:
    """One use of an op: inputs widened to float64 (integers stay), attributes, types of the outputs."""

    inputs: Sequence[Array]
    attrs: Mapping[str, AttributeValue]
    outputs: Sequence[TensorSpec]

    def flag(self, name: str) -> bool:
        """A boolean attribute, false when absent."""
        return self.attrs.get(name, False) is True

    def attr(self, name: str, default: Any) -> Any:
        """An attribute, or what its absence means."""
        return self.attrs.get(name, default)


Meaning = Callable[[Call], Sequence[Array]]


def _product(call: Call) -> Array:
    a, b = call.inputs[:2]
    left = np.swapaxes(a, -1, -2) if call.flag("trans_a") else a
    right = np.swapaxes(b, -1, -2) if call.flag("trans_b") else b
    return np.matmul(left, right)


def _gemm_epilogue(call: Call) -> list[Array]:
    extra = list(call.inputs[2:])
    z = _product(call)
    if call.flag("bias"):
        z = z + extra.pop(0)
    if (act_grad := call.attr("act_grad", "none")) != "none":
        out = DERIVATIVES[act_grad](z, extra.pop(0))
    else:
        act = call.attr("act", "none")
        out = z if act == "none" else ACTIVATIONS[act](z)
    results = [out]
    if call.flag("pre"):
        results.append(z)
    if call.flag("bias_grad"):
        results.append(call.inputs[0].sum(axis=-2 if call.flag("trans_a") else -1))
    return results


def _reduce_sum(call: Call) -> list[Array]:
    total = call.inputs[0].sum(axis=tuple(call.attr("dims", ())))
    return [np.reshape(total * call.attr("scale", 1.0), call.outputs[0][1])]


def _mse_loss(call: Call) -> list[Array]:
    y, t = call.inputs
    return [losses.mse_loss(y, t, call.attr("reduction", "mean"))]


def _mse_grad(call: Call) -> list[Array]:
    dloss, y, t = call.inputs
    return [losses.mse_grad(dloss, y, t, call.attr("reduction", "mean"))]


def _cross_entropy_options(call: Call) -> tuple[str, int, float]:
    return call.attr("reduction", "mean"), call.attr("ignore_index", -100), call.attr("label_smoothing", 0.0)


def _cross_entropy(call: Call) -> list[Array]:
    logits, target = call.inputs
    return [losses.cross_entropy(logits, target, *_cross_entropy_options(call))]


def _cross_entropy_grad(call: Call) -> list[Array]:
    dloss, logits, target = call.inputs
    return [losses.cross_entropy_grad(dloss, logits, target, *_cross_entropy_options(call))]


def _check_index(call: Call) -> list[Array]:
    status, target = call.inputs
    ignored = call.attr("ignore_index", None)
    return [checks.check_index(status, target, call.attr("classes", 0), ignored, call.attr("code", 0))]


def _check_finite(call: Call) -> list[Array]:
    status, *values = call.inputs
    return [checks.check_finite(status, values, call.attr("code", 0))]


def _advance(call: Call) -> list[Array]:
    step = updates.advance(call.inputs[0])
    if len(call.inputs) == 1:
        return [step]
    beta1, beta2, pin1, pin2 = call.inputs[1:]
    return [
        step,
        updates.inverse_bias_correction(beta1, step, pin1),
        updates.inverse_bias_correction(beta2, step, pin2),
    ]


def _columns(call: Call, tensors: int, metas: int) -> list[list[Array]]:
    """
    The operands of a multi-tensor update, a row a tensor: its `tensors` own, then its group's `metas`, of which a
    vector has an element for each parameter.
    """
    groups: list[int] = call.attr("groups", [])
    n = len(groups)
    indices: list[int] = call.attr("indices", [0] * n)
    rows: list[list[Array]] = []
    for i, (group, index) in enumerate(zip(groups, indices, strict=True)):
        first = tensors * n + metas * group
        scalars = [meta[index] if meta.ndim else meta for meta in call.inputs[first : first + metas]]
        rows.append([*(call.inputs[column * n + i] for column in range(tensors)), *scalars])
    return rows


def _by_column(rows: Sequence[Sequence[Array | None]]) -> list[Array]:
    """All first results, then all second results, ...: the order of the outputs of a multi-tensor update."""
    return [value for column in zip(*rows, strict=True) for value in column if value is not None]


def _sgd_step(call: Call) -> list[Array]:
    flags = {"nesterov": call.flag("nesterov"), "maximize": call.flag("maximize")}
    if not call.flag("momentum"):
        return _by_column([updates.sgd(*row, **flags) for row in _columns(call, 2, 2)])
    rows: list[Sequence[Array | None]] = []
    for p, g, buf, lr, weight_decay, momentum, dampening, step in _columns(call, 3, 5):
        rows.append(updates.sgd(p, g, lr, weight_decay, buf, momentum, dampening, step, **flags))
    return _by_column(rows)


def _adam_step(call: Call) -> list[Array]:
    amsgrad = call.flag("amsgrad")
    flags = {"decoupled": call.flag("decoupled"), "maximize": call.flag("maximize")}
    rows: list[Sequence[Array | None]] = []
    for row in _columns(call, 5 if amsgrad else 4, 7):
        vmax = row.pop(4) if amsgrad else None
        p, g, m, v, lr, beta1, beta2, eps, weight_decay, bc1_inv, bc2_inv = row
        scalars = (lr, beta1, beta2, eps, weight_decay, bc1_inv, bc2_inv)
        rows.append(updates.adam(p, g, m, v, vmax, *scalars, element=call.outputs[0][0], **flags))
    return _by_column(rows)


def _unary(function: Callable[[Array], Array]) -> Meaning:
    return lambda call: [function(call.inputs[0])]


def _binary(function: Callable[[Array, Array], Array]) -> Meaning:
    return lambda call: [function(call.inputs[0], call.inputs[1])]


MEANINGS: dict[str, Meaning] = {
    "add": _binary(np.add),
    "sub": _binary(np.subtract),
    "mul": _binary(np.multiply),
    "div": _binary(np.divide),
    "neg": _unary(np.negative),
    **{name: _unary(function) for name, function in ACTIVATIONS.items()},
    **{f"{name}_bwd": _binary(function) for name, function in DERIVATIVES.items()},
    "bias_add": _binary(np.add),
    "gemm": lambda call: [_product(call)],
    "gemm_epilogue": _gemm_epilogue,
    "reduce_sum": _reduce_sum,
    "mse_loss": _mse_loss,
    "mse_grad": _mse_grad,
    "cross_entropy": _cross_entropy,
    "cross_entropy_grad": _cross_entropy_grad,
    "copy": _unary(np.asarray),
    "transpose": lambda call: [np.transpose(call.inputs[0], call.attr("perm", None))],
    "broadcast": lambda call: [np.broadcast_to(call.inputs[0], call.outputs[0][1])],
    "check_index": _check_index,
    "check_finite": _check_finite,
    "advance": _advance,
    "sgd_step": _sgd_step,
    "adam_step": _adam_step,
}
"""By op name without the dialect, one for every OpKind of the runtime."""


def meaning(
    op_name: str,
    inputs: Sequence[Array],
    attrs: Mapping[str, AttributeValue],
    output_types: Sequence[TensorSpec],
    arithmetic: Arithmetic = ROUNDED,
) -> list[Array]:
    """The outputs of one kernel op: computed in float64, by default rounded to the output types once.

    `op_name` is the name in the kernel dialect without its prefix ("gemm_epilogue"); `output_types` are
    like [("f32", (64, 256))]. Raises KeyError for an unknown op, ValueError for a result of the wrong shape.
    """
    with np.errstate(all="ignore"):
        call = Call([arithmetic.widen(array) for array in inputs], attrs, output_types)
        results = MEANINGS[op_name](call)
    outputs = [
        arithmetic.round(np.asarray(r), element)
        for r, (element, _) in zip(results, output_types, strict=True)
    ]
    for index, (output, (_, shape)) in enumerate(zip(outputs, output_types, strict=True)):
        if output.shape != shape:
            raise ValueError(f"output {index} of {op_name} has shape {output.shape}, expected {shape}")
    return outputs


def _run_launch(
    functions: ArithmeticFunctions, interpreter: Interpreter, op: KernelOp, args: PythonValues
) -> PythonValues:
    del interpreter
    return tuple(meaning(op.op_name, args, op.attrs, op.output_specs, functions.arithmetic))


class _KernelFunctions(ArithmeticFunctions):
    @impl(ConstantOp)
    def run_constant(self, interpreter: Interpreter, op: ConstantOp, args: PythonValues) -> PythonValues:
        element, shape = op.spec
        return (np.full(shape, op.number, dtype=NUMPY_TYPES[element]),)

    @impl(ReshapeOp)
    def run_reshape(self, interpreter: Interpreter, op: ReshapeOp, args: PythonValues) -> PythonValues:
        return (np.reshape(args[0], op.spec[1]),)


KernelFunctions: type[ArithmeticFunctions] = register_impls(
    type(
        "KernelFunctions",
        (_KernelFunctions,),
        {f"run_{op_type.name}": impl(op_type)(_run_launch) for op_type in LAUNCHES},
    )
)
"""The implementations for xDSL's interpreter: one rule for every launch."""
