"""Gradients of whole steps: against torch's autograd in float64, in a fixed order, at the user's lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from programs import run_by_name, run_pipeline, step_function
from samples.sample import classes, normal, parse_type
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, StringAttr
from xdsl.ir import Operation

from aicf_mlir.dialects import nn
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.ir.signature import argument_labels, result_labels, return_op
from aicf_mlir.passes.autodiff import Backward, values_depending_on
from aicf_mlir.text.parsing import parse_module


@dataclass(frozen=True)
class Step:
    """A small model in both languages: the body in nn, the loss in torch."""

    name: str
    arguments: dict[str, str]
    """Types by name; arguments in capitals are inputs, the others params."""
    body: str
    loss: Callable[..., Any]
    classes: int = 0

    def text(self, element: str = "f64") -> str:
        """The step as a file, with `element` in the place of f64."""
        arguments = ", ".join(
            f'%{name}: tensor<{type}> {{aicf.role = "{role(name)}", aicf.name = "{name}"}}'
            for name, type in self.arguments.items()
        )
        text = f"""func.func @{self.name}({arguments}) -> (tensor<f64> {{{LOSS}}}) {{
{self.body}  func.return %loss : tensor<f64>
}}
"""
        return text.replace("f64", element)

    def values(self) -> dict[str, Array]:
        rng = np.random.default_rng(3)
        return {
            name: (classes(self.classes) if type.endswith("i64") else normal)(
                rng, parse_type(type).get_shape()
            )
            for name, type in self.arguments.items()
        }


LOSS = 'aicf.role = "loss", aicf.name = "loss"'


def role(name: str) -> str:
    return "input" if name.isupper() else "param"


STEPS = [
    Step(
        "mlp",
        {"X": "7x5xf64", "T": "7x3xf64", "w0": "9x5xf64", "b0": "9xf64", "w1": "3x9xf64", "b1": "3xf64"},
        """\
  %h = nn.linear %X, %w0, %b0 : (tensor<7x5xf64>, tensor<9x5xf64>, tensor<9xf64>) -> tensor<7x9xf64>
  %a = nn.gelu %h {approximate = "tanh"} : tensor<7x9xf64>
  %y = nn.linear %a, %w1, %b1 : (tensor<7x9xf64>, tensor<3x9xf64>, tensor<3xf64>) -> tensor<7x3xf64>
  %loss = nn.mse_loss %y, %T : (tensor<7x3xf64>, tensor<7x3xf64>) -> tensor<f64>
""",
        lambda X, T, w0, b0, w1, b1: F.mse_loss(
            F.linear(F.gelu(F.linear(X, w0, b0), approximate="tanh"), w1, b1), T
        ),
    ),
    Step(
        "tied_autoencoder",
        {"X": "4x6xf64", "w": "3x6xf64", "b": "3xf64"},
        """\
  %h = nn.linear %X, %w, %b : (tensor<4x6xf64>, tensor<3x6xf64>, tensor<3xf64>) -> tensor<4x3xf64>
  %a = nn.tanh %h : tensor<4x3xf64>
  %y = nn.matmul %a, %w : (tensor<4x3xf64>, tensor<3x6xf64>) -> tensor<4x6xf64>
  %loss = nn.mse_loss %y, %X {reduction = "sum"} : (tensor<4x6xf64>, tensor<4x6xf64>) -> tensor<f64>
""",
        lambda X, w, b: F.mse_loss(torch.tanh(F.linear(X, w, b)) @ w, X, reduction="sum"),
    ),
    Step(
        "classifier",
        {"X": "2x3x5xf64", "T": "6xi64", "w": "4x5xf64", "b": "4xf64", "scale": "f64", "shift": "3x1xf64"},
        """\
  %h = nn.linear %X, %w, %b : (tensor<2x3x5xf64>, tensor<4x5xf64>, tensor<4xf64>) -> tensor<2x3x4xf64>
  %m = nn.mul %h, %scale : (tensor<2x3x4xf64>, tensor<f64>) -> tensor<2x3x4xf64>
  %s = nn.silu %m : tensor<2x3x4xf64>
  %p = nn.add %s, %shift : (tensor<2x3x4xf64>, tensor<3x1xf64>) -> tensor<2x3x4xf64>
  %r = nn.reshape %p : (tensor<2x3x4xf64>) -> tensor<6x4xf64>
  %loss = nn.cross_entropy %r, %T {label_smoothing = 0.1} : (tensor<6x4xf64>, tensor<6xi64>) -> tensor<f64>
""",
        lambda X, T, w, b, scale, shift: F.cross_entropy(
            (F.silu(F.linear(X, w, b) * scale) + shift).reshape(6, 4), T, label_smoothing=0.1
        ),
        classes=4,
    ),
    Step(
        "attention_like",
        {"X": "2x3x4xf64", "q": "2x4x5xf64", "k": "2x4x5xf64", "v": "3xf64"},
        """\
  %a = nn.matmul %X, %q : (tensor<2x3x4xf64>, tensor<2x4x5xf64>) -> tensor<2x3x5xf64>
  %b = nn.matmul %X, %k : (tensor<2x3x4xf64>, tensor<2x4x5xf64>) -> tensor<2x3x5xf64>
  %bt = nn.transpose %b {perm = array<i64: 0, 2, 1>} : (tensor<2x3x5xf64>) -> tensor<2x5x3xf64>
  %s = nn.matmul %a, %bt : (tensor<2x3x5xf64>, tensor<2x5x3xf64>) -> tensor<2x3x3xf64>
  %g = nn.sigmoid %s : tensor<2x3x3xf64>
  %w = nn.broadcast_to %v : (tensor<3xf64>) -> tensor<2x3x3xf64>
  %d = nn.div %g, %w : tensor<2x3x3xf64>
  %e = nn.sub %d, %v : (tensor<2x3x3xf64>, tensor<3xf64>) -> tensor<2x3x3xf64>
  %n = nn.neg %e : tensor<2x3x3xf64>
  %m = nn.mean %n {dims = array<i64: 1>, keepdim = true} : (tensor<2x3x3xf64>) -> tensor<2x1x3xf64>
  %z = nn.mul %m, %e : (tensor<2x1x3xf64>, tensor<2x3x3xf64>) -> tensor<2x3x3xf64>
  %loss = nn.sum %z {dims = array<i64: 0, 1, 2>} : (tensor<2x3x3xf64>) -> tensor<f64>
""",
        lambda X, q, k, v: (
            (e := torch.sigmoid((X @ q) @ (X @ k).mT) / v - v) * (-e).mean(1, keepdim=True)
        ).sum(),
    ),
    Step(
        "reused",
        {"w": "3x3xf64", "b": "3xf64"},
        """\
  %a = nn.linear %w, %w, %b : (tensor<3x3xf64>, tensor<3x3xf64>, tensor<3xf64>) -> tensor<3x3xf64>
  %c = nn.mul %a, %a : tensor<3x3xf64>
  %r = nn.relu %c : tensor<3x3xf64>
  %s = nn.add %r, %w : tensor<3x3xf64>
  %loss = nn.mean %s {dims = array<i64: 0, 1>} : (tensor<3x3xf64>) -> tensor<f64>
""",
        lambda w, b: (torch.relu(F.linear(w, w, b) ** 2) + w).mean(),
    ),
]


@pytest.mark.parametrize("passes", ["autodiff", "canonicalize,cse,autodiff,canonicalize,cse,dce"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_gradients_are_those_of_torch(step: Step, passes: str) -> None:
    values = step.values()
    results = run_by_name(run_pipeline(parse_module(step.text()), passes), values)
    leaves = {
        name: torch.from_numpy(value).requires_grad_(role(name) == "param") for name, value in values.items()
    }
    loss = step.loss(**leaves)
    loss.backward()
    np.testing.assert_allclose(results["loss", "loss"], loss.detach().numpy(), rtol=1e-12)
    params = [name for name in values if role(name) == "param"]
    assert [name for kind, name in results if kind == "grad"] == params
    for name in params:
        gradient = leaves[name].grad
        assert gradient is not None
        np.testing.assert_allclose(results["grad", name], gradient.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("element", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_gradients_have_the_type_of_their_parameter(step: Step, element: str) -> None:
    function = step_function(run_pipeline(parse_module(step.text(element)), "autodiff"))
    types = {
        label.name: argument.type
        for label, argument in zip(argument_labels(function), function.args, strict=True)
    }
    results = zip(result_labels(function), function.function_type.outputs, strict=True)
    for label, type in results:
        assert label.role != "grad" or type == types[label.name]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_the_text_is_the_same_every_time(step: Step) -> None:
    texts = {str(run_pipeline(parse_module(step.text()), "autodiff")) for _ in range(5)}
    assert len(texts) == 1


def test_every_emitted_op_has_the_location_of_its_forward_op() -> None:
    module = parse_module(STEPS[0].text())
    forward = list(step_function(module).body.block.ops)[:-1]
    for line, op in enumerate(forward, start=1):
        op.location = FileLineColLoc(StringAttr("model.py"), IntAttr(line), IntAttr(1))
    after = list(step_function(run_pipeline(module, "autodiff")).body.block.ops)[len(forward) : -1]
    assert [(op.name, line_of(op)) for op in after] == [
        ("nn.constant", 4),
        ("nn.mse_loss_grad", 4),
        ("nn.matmul", 3),
        ("nn.matmul", 3),
        ("nn.sum", 3),
        ("nn.gelu_grad", 2),
        ("nn.matmul", 1),
        ("nn.sum", 1),
    ]


def line_of(op: Operation) -> int:
    assert isinstance(op.location, FileLineColLoc)
    return op.location.line.data


@pytest.mark.parametrize("count", [64, 256])
def test_gradients_of_slices_are_as_many_as_slices(count: int) -> None:
    """Those of all steps of a sequence are put together once: what is written does not grow with the square of the steps."""
    lines, total = list[str](), "%z"
    for t in range(count):
        sizes = [t, 1, count - t - 1]
        types = ", ".join(f"tensor<{size}xf64>" for size in sizes)
        lines += [
            f"%a{t}, %p{t}, %c{t} = nn.split %x {{dim = 0, sizes = array<i64: {str(sizes)[1:-1]}>}} : (tensor<{count}xf64>)"
            f" -> ({types})",
            f"%m{t} = nn.mul %p{t}, %p{t} : tensor<1xf64>",
            f"%s{t} = nn.add {total}, %m{t} : tensor<1xf64>",
        ]
        total = f"%s{t}"
    module = parse_module(
        f"""func.func @step(%x: tensor<{count}xf64> {{aicf.role = "param", aicf.name = "x"}}) -> (tensor<f64> {{{LOSS}}}) {{
%z = nn.constant {{value = 0.0}} : tensor<1xf64>
{chr(10).join(lines)}
%loss = nn.sum {total} {{dims = array<i64: 0>}} : (tensor<1xf64>) -> tensor<f64>
func.return %loss : tensor<f64>
}}"""
    )
    function = step_function(module)
    end = return_op(function)
    forward = [op for op in function.body.block.ops if op is not end]
    backward = Backward(end, values_depending_on(function.args, forward))
    backward.run(forward, end.operands, None)
    assert sum(len(op.operands) for op in backward.emitted) < 12 * count
    (gradient,) = (backward.cotangents[each] for each in function.args)
    assert isinstance(gradient.owner, nn.ConcatOp) and len(gradient.owner.inputs) == count
