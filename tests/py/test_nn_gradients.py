"""Every differentiable nn op against central differences, in float64, through the interpreter."""

from __future__ import annotations

import numpy as np
from programs import run_by_name, run_pipeline
from samples import NN_SAMPLES, Sample, sweep
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, Float64Type, ModuleOp, TensorType, f64
from xdsl.ir import Block, Region

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.base import shape_of, tensor_type
from aicf_mlir.dialects.interfaces import DifferentiableInterface
from aicf_mlir.dialects.signature import Label, set_results
from aicf_mlir.dialects.verification import is_float
from aicf_mlir.interpreters.numerics import Array

STEP = 1e-6
"""Of the differences: half the digits of float64 are lost to it, so the tolerance is 1e-7 of the scale."""

CHECKED = [
    sample
    for sample in NN_SAMPLES
    if sample.smooth
    and issubclass(sample.op_type(), DifferentiableInterface)
    and any(isinstance(type.get_element_type(), Float64Type) for type in sample.types("f64"))
]


def weighted_loss(sample: Sample) -> ModuleOp:
    """loss = sum(op(p0, p1, ...) * weights): every element of the result counts, each by another amount."""
    block = Block(arg_types=sample.types("f64"))
    labels = [
        Label("param" if is_float(argument) else "input", f"p{index}")
        for index, argument in enumerate(block.args)
    ]
    op = sample.build(*block.args)
    (result,) = op.results
    weights = block.insert_arg(tensor_type(result), len(block.args))
    product = nn.MulOp(result, weights)
    loss = nn.SumOp(product)
    block.add_ops([op, product, loss, func.ReturnOp(loss)])
    attributes: list[DictionaryAttr] = [
        label.to_attribute() for label in (*labels, Label("input", "weights"))
    ]
    function = func.FuncOp(
        "loss",
        (block.arg_types, [TensorType(f64, [])]),
        Region(block),
        arg_attrs=ArrayAttr(attributes),
    )
    set_results(function, [(loss.result, Label("loss", "loss"))])
    return ModuleOp([function])


def central_difference(module: ModuleOp, values: dict[str, Array], name: str) -> Array:
    """The derivative of the loss by each element of the argument `name`."""
    base = values[name]
    slopes = np.zeros_like(base)
    for index in np.ndindex(base.shape):
        losses: list[float] = []
        for step in (STEP, -STEP):
            moved = base.copy()
            moved[index] += step
            losses.append(float(run_by_name(module, {**values, name: moved})["loss", "loss"]))
        slopes[index] = (losses[0] - losses[1]) / (2 * STEP)
    return slopes


@sweep(CHECKED)
def test_gradient_is_the_central_difference(sample: Sample) -> None:
    module = weighted_loss(sample)
    values = {f"p{index}": value for index, value in enumerate(sample.values("f64", seed=1))}
    params = [name for name, value in values.items() if value.dtype == np.float64]
    block = next(iter(module.ops)).regions[0].block
    rng = np.random.default_rng(2)
    values["weights"] = rng.uniform(0.5, 1.5, shape_of(block.args[-1])).astype(np.float64)
    gradients = run_by_name(run_pipeline(module, "autodiff"), values)
    assert [name for role, name in gradients if role == "grad"] == params
    for name in params:
        expected = central_difference(module, values, name)
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        np.testing.assert_allclose(gradients["grad", name], expected, rtol=1e-6, atol=1e-7 * scale)


def test_every_differentiable_op_is_checked() -> None:
    differentiable = {op for op in nn.NN.operations if issubclass(op, DifferentiableInterface)}
    assert {sample.op_type() for sample in CHECKED} == differentiable
