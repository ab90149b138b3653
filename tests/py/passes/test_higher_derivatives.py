"""Every differentiable nn op differentiated three times, in float64, through the interpreter, against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from programs import run_by_name, run_pipeline
from samples import Sample, sweep
from test_nn_gradients import CHECKED, carrying, weighted_loss
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.train import GradientOp
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.ir.interfaces import DifferentiableInterface, UnfoldableInterface
from aicf_mlir.ir.properties import is_true
from aicf_mlir.ir.signature import Label, argument_labels, return_op, set_results
from aicf_mlir.ir.tensor_op import shape_of, tensor_type

ORDERS = 3

WITHOUT = (nn.FloorDivideOp, nn.HingeOp)
"""Ops for which torch has no second derivative to compare with."""

COMPARED = [sample for sample in CHECKED if not issubclass(sample.op_type(), WITHOUT)]


def function_of(module: ModuleOp) -> func.FuncOp:
    """The only function of a module."""
    return next(op for op in module.ops if isinstance(op, func.FuncOp))


def nested(sample: Sample) -> ModuleOp:
    """The loss of `weighted_loss`, then twice the sum of all gradients of the loss before, each times weights."""
    module = weighted_loss(sample, curved=True)
    function = function_of(module)
    block, last = function.body.block, return_op(function)
    params = [
        argument
        for argument, label in zip(function.args, argument_labels(function), strict=True)
        if label.role == "param"
    ]
    loss: SSAValue = last.operands[0]
    for _ in range(ORDERS - 1):
        one = nn.ConstantOp(1.0, tensor_type(loss))
        gradient = GradientOp([loss], [one], params, create_graph=True)
        block.insert_ops_before([one, gradient], last)
        parts: list[SSAValue] = []
        for number, each in enumerate(gradient.gradients):
            weights = nn.ConstantOp(weight(number), tensor_type(each))
            product = nn.SinOp(each)
            block.insert_ops_before(
                [product, weights, part := nn.MulOp(product, weights), total := nn.SumOp(part)], last
            )
            parts.append(total.result)
        loss = parts[0]
        for part in parts[1:]:
            block.insert_op_before(total := nn.AddOp(loss, part), last)
            loss = total.result
    set_results(function, [(loss, Label("loss", "loss"))])
    return module


def weight(number: int) -> float:
    """The weight of the gradient of one operand."""
    return 0.3 + 0.2 * number


def reference(sample: Sample) -> Callable[..., Any]:
    """What torch computes; logcumsumexp as written, since torch takes the logarithm of its gradient: the third is NaN."""
    op = sample.build(*sample.block("f64").args)
    if not isinstance(op, nn.ScanOp) or op.kind.data != "logaddexp":
        return sample.torch
    dim, turned = op.dim.value.data, [op.dim.value.data] if is_true(op.reverse) else []
    return lambda x: x.flip(turned).exp().cumsum(dim).log().flip(turned)


def by_torch(sample: Sample, values: dict[str, Array], params: list[str]) -> dict[str, Array]:
    """The gradients of the same loss by torch."""
    operands = {name: torch.from_numpy(np.array(value)) for name, value in values.items()}
    wrt = [operands[name].requires_grad_() for name in params]
    made = reference(sample)(*(each for name, each in operands.items() if name.startswith("p")))
    results = made if isinstance(made, tuple) else (made,)
    kept = carrying(sample.build(*sample.block("f64").args))
    loss = torch.stack([(results[index] * operands[f"weights{index}"]).sin().sum() for index in kept]).sum()
    found: tuple[torch.Tensor, ...] = ()
    for order in range(ORDERS):
        if not loss.requires_grad:
            return {name: np.zeros_like(values[name]) for name in params}
        found = torch.autograd.grad(loss, wrt, create_graph=True, materialize_grads=True)
        if order < ORDERS - 1:
            loss = torch.stack([(g.sin() * weight(i)).sum() for i, g in enumerate(found)]).sum()
    return {name: gradient.detach().numpy() for name, gradient in zip(params, found, strict=True)}


@sweep(COMPARED)
def test_third_derivative_is_that_of_torch(sample: Sample) -> None:
    module = nested(sample)
    values = {f"p{index}": value for index, value in enumerate(sample.values("f64", seed=1))}
    params = [name for name, value in values.items() if value.dtype == np.float64]
    function = function_of(module)
    rng = np.random.default_rng(2)
    for label, argument in zip(argument_labels(function), function.args, strict=True):
        if label.role == "input" and label.name.startswith("weights"):
            values[label.name] = rng.uniform(0.5, 1.5, shape_of(argument)).astype(np.float64)
    expected = by_torch(sample, values, params)
    if not any(gradient.any() for gradient in expected.values()):
        return  # a step function, or one with no element
    derived = run_by_name(run_pipeline(module, "autodiff"), values)
    for name in params:
        scale = max(1.0, float(np.abs(expected[name]).max(initial=0.0)))
        gradient = derived.get(("grad", name), np.zeros_like(expected[name]))
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-9, atol=1e-11 * scale)


def test_every_gradient_that_is_one_op_is_written_by_others() -> None:
    """No op says that its second derivative is missing: it has a gradient, can be unfolded, or has a reason in itself."""
    gradients = [
        op for op in nn.NN.operations if op.name.partition("_grad")[1] and op is not nn.CustomGradientOp
    ]
    assert gradients
    assert all(issubclass(op, UnfoldableInterface | DifferentiableInterface) for op in gradients)
