"""Every differentiable nn op against central differences, in float64, through the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from programs import run_by_name, run_pipeline
from samples import NN_SAMPLES, Sample, sweep
from samples.collectives import WRITTEN_BEFORE
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, Float64Type, ModuleOp, TensorType, f64
from xdsl.ir import Block, Operation, Region

from aicf_mlir.dialects import nn
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.ir.expect import is_float
from aicf_mlir.ir.interfaces import DifferentiableInPartsInterface, DifferentiableInterface
from aicf_mlir.ir.signature import Label, argument_labels, set_results
from aicf_mlir.ir.tensor_op import shape_of, tensor_type

STEP = 1e-6
"""Of the differences: half the digits of float64 are lost to it, so the tolerance is 1e-7 of the scale."""

CHECKED = [
    sample
    for sample in NN_SAMPLES
    if sample.smooth
    and issubclass(sample.op_type(), DifferentiableInterface)
    and any(isinstance(type.get_element_type(), Float64Type) for type in sample.types("f64"))
]


def weighted_loss(sample: Sample, *counted: int, curved: bool = False) -> ModuleOp:
    """loss = Σ sum(result * weights): every element of every result counts, each by another amount; `curved`: by its sine."""
    block = Block(arg_types=sample.types("f64"))
    labels = [
        Label("param" if is_float(argument) else "input", f"p{index}")
        for index, argument in enumerate(block.args)
    ]
    op = sample.build(*block.args)
    block.add_op(op)
    loss: nn.SumOp | nn.AddOp | None = None
    for index in counted or carrying(op):
        result = op.results[index]
        weights = block.insert_arg(tensor_type(result), len(block.args))
        labels.append(Label("input", f"weights{index}"))
        product = nn.MulOp(result, weights)
        block.add_op(product)
        if curved:
            block.add_op(product := nn.SinOp(product))
        block.add_op(part := nn.SumOp(product))
        if loss is not None:
            block.add_op(part := nn.AddOp(loss, part))
        loss = part
    assert loss is not None
    block.add_op(func.ReturnOp(loss))
    attributes: list[DictionaryAttr] = [label.to_attribute() for label in labels]
    function = func.FuncOp(
        "loss",
        (block.arg_types, [TensorType(f64, [])]),
        Region(block),
        arg_attrs=ArrayAttr(attributes),
    )
    set_results(function, [(loss.result, Label("loss", "loss"))])
    return ModuleOp([function])


def carrying(op: Operation) -> list[int]:
    """The results that a gradient flows through."""
    stopped = op.without_gradient if isinstance(op, DifferentiableInPartsInterface) else ()
    return [i for i, result in enumerate(op.results) if is_float(result) and result not in stopped]


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
    check(sample, weighted_loss(sample))


SEVERAL = [sample for sample in CHECKED if len(carrying(sample.build(*sample.block("f64").args))) > 1]


@sweep(SEVERAL)
@pytest.mark.parametrize("index", [0, 1])
def test_gradient_of_one_result_of_several(sample: Sample, index: int) -> None:
    """The loss depends on one result: the others have no cotangent, and nothing is computed for them."""
    check(sample, module := weighted_loss(sample, index))
    assert len(list(module.walk())) > 0


def assert_all_readers_stand(module: ModuleOp) -> None:
    """What is built beside the function and thrown away must not stay among the readers of its values."""
    for op in module.walk():
        values = [*op.results, *(argument for region in op.regions for argument in region.block.args)]
        strays = [use.operation for value in values for use in value.uses if use.operation.parent is None]
        assert not strays, f"{strays[0].name} reads a value of {op.name} and stands nowhere"


def check(sample: Sample, module: ModuleOp) -> None:
    values = {f"p{index}": value for index, value in enumerate(sample.values("f64", seed=1))}
    params = [name for name, value in values.items() if value.dtype == np.float64]
    function = next(op for op in module.ops if isinstance(op, func.FuncOp))
    rng = np.random.default_rng(2)
    for label, argument in zip(argument_labels(function), function.args, strict=True):
        if label.role == "input" and label.name.startswith("weights"):
            values[label.name] = rng.uniform(0.5, 1.5, shape_of(argument)).astype(np.float64)
    derived = run_pipeline(module, "autodiff")
    assert_all_readers_stand(derived)
    gradients = run_by_name(derived, values)
    reached = [name for role, name in gradients if role == "grad"]
    assert reached == [name for name in params if name in reached]
    for name in params:
        expected = central_difference(module, values, name)
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        found = gradients.get(("grad", name), np.zeros_like(expected))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7 * scale)


def test_every_differentiable_op_is_checked() -> None:
    differentiable = {op for op in nn.NN.operations if issubclass(op, DifferentiableInterface)}
    assert {sample.op_type() for sample in CHECKED} | WRITTEN_BEFORE == differentiable
