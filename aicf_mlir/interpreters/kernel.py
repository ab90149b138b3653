"""The results of each kernel op, in NumPy: the truth that passes, kernels and devices must agree with."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import numpy as np
from xdsl.interpreter import Interpreter, PythonValues, impl, register_impls

from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.kernel import LAUNCHES, ConstantOp, JoinOp, ReshapeOp, ViewOp
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.interpreters import attention, checks, collectives, convolutions, losses, order
from aicf_mlir.interpreters.activations import ACTIVATIONS, DERIVATIVES
from aicf_mlir.interpreters.arithmetic import ROUNDED, Arithmetic
from aicf_mlir.interpreters.body import evaluate
from aicf_mlir.interpreters.call import Call, Meaning, compared
from aicf_mlir.interpreters.chains import chain
from aicf_mlir.interpreters.numerics import (
    ELEMENTS,
    NUMPY_TYPES,
    Array,
    compute_type,
    overflowing,
    pairwise_sum,
    places,
)
from aicf_mlir.interpreters.runner import ArithmeticFunctions
from aicf_mlir.ir.attributes import AttributeValue
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.ir.layouts import layout_of
from aicf_mlir.ir.registry import Counts, TensorSpec, schemas, segments
from aicf_mlir.ir.tensor_op import tensor_type
from aicf_mlir.kernels.horizontal import members_of, parted
from aicf_mlir.optimizers import UPDATES
from aicf_mlir.optimizers.advance import advance
from aicf_mlir.optimizers.launched import LaunchedRule
from aicf_mlir.optimizers.op import tensors_of


def _product(call: Call) -> Array:
    a, b = call["a"], call["b"]
    left = np.swapaxes(a, -1, -2) if call.flag("trans_a") else a
    right = np.swapaxes(b, -1, -2) if call.flag("trans_b") else b
    return np.matmul(left, right)


def _gemm_epilogue(call: Call) -> list[Array]:
    z = _product(call)
    if call.has("bias"):
        z = z + call["bias"]
    act, act_grad = call.attr("act", "none"), call.attr("act_grad", "none")
    seen, element = z, call.elements["a"][0]
    if element in NARROW and {act, act_grad} - {"none", "relu"}:  # relu chooses, and may do so before
        seen = call.arithmetic.round(z, element).astype(np.float64)
    if act_grad != "none":
        out = DERIVATIVES[act_grad](seen, call["saved"])
    elif act != "none":
        out = ACTIVATIONS[act](seen)
    else:
        out = z
    results = [out]
    if call.has("pre"):
        results.append(z)
    if call.has("bias_grad"):
        results.append(pairwise_sum(call["a"], (-2 if call.flag("trans_a") else -1,)))
    return results


def _reduce_sum(call: Call) -> list[Array]:
    total = pairwise_sum(call["x"], call.attr("dims", ()))
    return [np.reshape(np.divide(total, call.attr("divisor", 1.0)), call.outputs["y"][0][1])]


def _softmax(x: Array) -> Array:
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True, initial=-np.inf))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _softmax_grad(dy: Array, y: Array) -> Array:
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))


def _mse_loss(call: Call) -> list[Array]:
    return [losses.mse_loss(call["y"], call["t"], call.attr("reduction", "mean"))]


def _mse_grad(call: Call) -> list[Array]:
    return [losses.mse_grad(call["dloss"], call["y"], call["t"], call.attr("reduction", "mean"))]


def _cross_entropy_options(call: Call) -> tuple[str, int, float, losses.Inner]:
    ((element, _), *_), *_ = call.outputs.values()
    inner = partial(call.arithmetic.inner, dtype=NUMPY_TYPES[element])
    smoothing = call.attr("label_smoothing", 0.0)
    return call.attr("reduction", "mean"), call.attr("ignore_index", -100), smoothing, inner


def _cross_entropy(call: Call) -> list[Array]:
    return [losses.cross_entropy(call["logits"], call["target"], *_cross_entropy_options(call))]


def _cross_entropy_grad(call: Call) -> list[Array]:
    operands = (call["dloss"], call["logits"], call["target"])
    return [losses.cross_entropy_grad(*operands, *_cross_entropy_options(call))]


def _scores(call: Call) -> attention.Scores:
    mask = call["mask"] if call.has("mask") else None
    narrow = NUMPY_TYPES[call.elements["query"][0]]
    element = compute_type(narrow)
    query, key = call["query"], call["key"]
    kept = None
    if call.has("random"):
        shape = (*query.shape[:3], key.shape[2])
        kept = attention.kept(call["random"], shape, call.attr("p", 0.0), call.attr("site", 0), element)
    given = (query, key, mask, call.flag("causal"), call.attr("scale", 1.0))
    return attention.Scores(*given, element, narrow, call.arithmetic, kept)


def _attention(call: Call) -> list[Array]:
    return attention.attention(_scores(call), call["value"])


def _attention_grad(call: Call) -> list[Array]:
    return attention.attention_grad(_scores(call), call["value"], call["dout"])


def _attention_mask_grad(call: Call) -> list[Array]:
    return attention.attention_mask_grad(_scores(call), call["value"], call["dout"])


def _check_index(call: Call) -> list[Array]:
    bounds = (call.attr("classes", []), call.attr("ignore_index", None), call.attr("code", 0))
    return [checks.check_index(call["status"], call.inputs["target"], *bounds)]


def _check_finite(call: Call) -> list[Array]:
    return [checks.check_finite(call["status"], call.inputs["x"], call.attr("code", 0))]


def _check_ranks(call: Call) -> list[Array]:
    return [checks.check_ranks(call["of_ranks"], call.attr("code", 0))]


def _advance(call: Call) -> list[Array]:
    return advance(**{name: values[0] for name, values in call.inputs.items() if values})


def _rows(call: Call, tensors: Collection[str]) -> list[dict[str, Array]]:
    """The operands of a multi-tensor update, a row a tensor: its own by name, then those of its group; a vector of the group
    has an element for each parameter.
    """
    groups: list[int] = call.attr("groups", [])
    indices: list[int] = call.attr("indices", [0] * len(groups))
    rows: list[dict[str, Array]] = []
    for i, (group, index) in enumerate(zip(groups, indices, strict=True)):
        row: dict[str, Array] = {}
        for name, values in call.inputs.items():
            if not values:
                continue
            value = values[i if name in tensors else group]
            row[name] = value[index] if name not in tensors and value.ndim else value
        rows.append(row)
    return rows


def _by_column(rows: Sequence[Sequence[Array | None]]) -> list[Array]:
    """All first results, then all second results, ...: the order of the outputs of a multi-tensor update."""
    return [value for column in zip(*rows, strict=True) for value in column if value is not None]


def _update_by(rule: type[LaunchedRule]) -> Meaning:
    """The update of many tensors that applies the formula of the optimizer to each."""
    schema = rule.launch()
    tensors, flags = tensors_of(schema), [row.name for row in schema.attrs if row.type == "bool"]

    def update(call: Call) -> list[Array]:
        given = {name: call.flag(name) for name in flags}
        element = call.outputs["p"][0][0]
        bounded = partial(overflowing, element=element)
        made = [rule.formula(**row, **given, bounded=bounded) for row in _rows(call, tensors)]
        numbers: list[int] = call.attr("copied", [])
        copied = [made[number][0] for number in numbers]
        return [*_by_column(made), *(call.arithmetic.round(p, element) for p in copied if p is not None)]

    return update


def _on(function: Callable[..., Array], *names: str) -> Meaning:
    """The meaning that is a function of some operands."""
    return lambda call: [function(*(call[name] for name in names))]


def _generated(first: bool) -> Meaning:
    """The meaning of a body at each point of the domain, with reductions over its first or its last dimensions."""

    def compute(call: Call) -> list[Array]:
        dims, reduced = range(len(call.attr("shape", []))), call.attr("reduced", 0)
        return evaluate(
            call.body,
            [*call.inputs["x"], *call.inputs["table"]],
            call.attr("shape", []),
            dims[:reduced] if first else dims[len(dims) - reduced :],
            [shape for _, shape in call.outputs["y"]],
            call.arithmetic,
        )

    return compute


def _each(reduced: bool) -> Meaning:
    """The meaning of a body at each point of each segment, or on all its elements, from the segment's operands."""

    def compute(call: Call) -> list[Array]:
        segments, shapes = call.attr("segments", 1), [shape for _, shape in call.outputs["y"]]
        read, written = len(call.inputs["x"]) // segments, len(shapes) // segments
        found: list[Array] = []
        for number in range(segments):
            given = call.inputs["x"][number * read : (number + 1) * read]
            own = shapes[number * written : (number + 1) * written]
            domain = given[0].shape if reduced else own[0]
            dims = range(len(domain)) if reduced else ()
            found += evaluate(call.body, given, domain, dims, own, call.arithmetic)
        return found

    return compute


def _gemm_map(call: Call) -> list[Array]:
    """The results of the body for each element of the product."""
    z = _product(call)
    return evaluate(
        call.body,
        [z, *(np.broadcast_to(x, z.shape) for x in call.inputs["x"]), *call.inputs["table"]],
        z.shape,
        (),
        [shape for _, shape in call.outputs["y"]],
        call.arithmetic,
    )


def _together(call: Call) -> list[Array]:
    """The results of each member on its operands."""
    assert call.body is not None
    members = members_of(call.attr("members", ""))
    given, types = list(call.inputs["x"]), list(call.outputs["y"])
    found: list[Array] = []
    for member, body in zip(members, parted(call.body, [(m.args, m.results) for m in members]), strict=True):
        own, given = given[: member.operands], given[member.operands :]
        made, types = types[: member.results], types[member.results :]
        attrs: dict[str, AttributeValue] = {**dict.fromkeys(member.flags, True), "reduced": member.reduced}
        inputs: dict[str, Sequence[Array]] = {"x": own, "table": ()}
        if member.kind == "gemm_map":
            inputs = {"a": own[:1], "b": own[1:2], "x": own[2:], "table": ()}
        else:
            attrs["shape"] = list(own[0].shape if own else made[0][1])
        part = Call(inputs, attrs, {"y": made}, [body], call.arithmetic)
        found += MEANINGS[member.kind](part)
    return found


MEANINGS: dict[str, Meaning] = {
    "add": _on(np.add, "x", "y"),
    "sub": _on(np.subtract, "x", "y"),
    "mul": _on(np.multiply, "x", "y"),
    "div": _on(np.divide, "x", "y"),
    "neg": _on(np.negative, "x"),
    **{name: _on(function, "x") for name, function in ACTIVATIONS.items()},
    **{f"{name}_bwd": _on(function, "dy", "saved") for name, function in DERIVATIVES.items()},
    "bias_add": _on(np.add, "x", "bias"),
    "gemm": lambda call: [_product(call)],
    "gemm_epilogue": _gemm_epilogue,
    "reduce_sum": _reduce_sum,
    "softmax": _on(_softmax, "x"),
    "softmax_grad": _on(_softmax_grad, "dy", "saved"),
    "mse_loss": _mse_loss,
    "mse_grad": _mse_grad,
    "cross_entropy": _cross_entropy,
    "cross_entropy_grad": _cross_entropy_grad,
    "copy": _on(np.asarray, "x"),
    "multi_tensor_copy": lambda call: list(call.inputs["x"]),
    "map": _generated(first=False),
    "multi_tensor_map": _each(reduced=False),
    "multi_tensor_rowwise": _each(reduced=True),
    "rowwise": _generated(first=False),
    "colwise": _generated(first=True),
    "gemm_map": _gemm_map,
    "horizontal": _together,
    "back_to_back": chain,
    **order.MEANINGS,
    **convolutions.MEANINGS,
    "attention": _attention,
    "attention_grad": _attention_grad,
    "attention_mask_grad": _attention_mask_grad,
    "check_index": _check_index,
    "check_finite": _check_finite,
    "check_ranks": _check_ranks,
    **collectives.MEANINGS,
    "advance": _advance,
    **{launch: _update_by(rule) for launch, rule in UPDATES.items()},
}
"""The meanings by op name without the dialect, one for every OpKind of the runtime."""


def meaning(
    op_name: str,
    inputs: Sequence[Array],
    attrs: Mapping[str, AttributeValue],
    output_types: Sequence[TensorSpec],
    arithmetic: Arithmetic = ROUNDED,
    counts: Counts | None = None,
    bodies: Sequence[Body] = (),
) -> list[Array]:
    """The outputs of one kernel op: computed in float64, by default rounded to the output types once.

    `op_name` is the name in the kernel dialect without its prefix ("gemm_epilogue"); `output_types` are like [("f32", (64,
    256))]; `counts` give the number of tensors of each operand and result, one each by default. Raises KeyError for an unknown
    op, ValueError for a result of the wrong shape.
    """
    schema = schemas()[op_name]
    given, results_of = counts or (None, None)
    with np.errstate(all="ignore"):
        widened = arithmetic.operands(inputs, compared(op_name, bodies))
        widened = arithmetic.factors(widened, attrs.get("allow_tf32") is True)
        call = Call(
            segments(schema.inputs, given, widened),
            attrs,
            segments(schema.outputs, results_of, output_types),
            bodies,
            arithmetic,
            segments(schema.inputs, given, [ELEMENTS.get(array.dtype, "") for array in inputs]),
        )
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
    assert isinstance(functions, _KernelFunctions)
    symbols = op.bodies if isinstance(op, GeneratedOp) else ()
    bodies = [functions.bodies(interpreter)[symbol] for symbol in symbols]
    arithmetic = functions.arithmetic
    return tuple(meaning(op.op_name, args, op.attrs, op.output_specs, arithmetic, op.counts, bodies))


class _KernelFunctions(ArithmeticFunctions):
    _bodies: Bodies | None = None

    def bodies(self, interpreter: Interpreter) -> Bodies:
        """The bodies of the interpreted module: one for each of these objects."""
        if self._bodies is None:
            self._bodies = Bodies(interpreter.module)
        return self._bodies

    @impl(ConstantOp)
    def run_constant(self, interpreter: Interpreter, op: ConstantOp, args: PythonValues) -> PythonValues:
        element, shape = op.spec
        return (np.full(shape, op.number, dtype=NUMPY_TYPES[element]),)

    @impl(ReshapeOp)
    def run_reshape(self, interpreter: Interpreter, op: ReshapeOp, args: PythonValues) -> PythonValues:
        return (np.reshape(args[0], op.spec[1]),)

    @impl(ViewOp)
    def run_view(self, interpreter: Interpreter, op: ViewOp, args: PythonValues) -> PythonValues:
        return (places(np.reshape(args[0], -1), op.layout),)

    @impl(JoinOp)
    def run_join(self, interpreter: Interpreter, op: JoinOp, args: PythonValues) -> PythonValues:
        element, shape = tensor_spec(op.output)
        block = np.empty(math.prod(shape), self.arithmetic.dtype(element))
        for part, value in zip(op.inputs, args, strict=True):
            places(block, layout_of(tensor_type(part)))[...] = value
        return (np.reshape(block, shape),)


KernelFunctions: type[ArithmeticFunctions] = register_impls(
    type(
        "KernelFunctions",
        (_KernelFunctions,),
        {f"run_{op_type.name}": impl(op_type)(_run_launch) for op_type in LAUNCHES},
    )
)
"""The implementations for xDSL's interpreter: one rule for every launch."""
