"""Every op of nn and optim: it has samples, round-trips as text, and means what torch says."""

from __future__ import annotations

import inspect
from io import StringIO

import numpy as np
import pytest
import torch
from programs import run_pipeline
from samples import SAMPLES, Sample, sweep
from samples.collectives import WRITTEN_BEFORE
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.irdl import IRDLOperation
from xdsl.printer import Printer

from aicf_mlir.dialects.nn import NN
from aicf_mlir.dialects.optim import Optim
from aicf_mlir.interpreters import nn as nn_interpreter
from aicf_mlir.interpreters import optim as optim_interpreter
from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.numerics import Array, round_to, widen
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.interfaces import DifferentiableInterface, NotDifferentiable, UnfoldableInterface
from aicf_mlir.ir.tensor_op import element_type
from aicf_mlir.ir.verify import verify_module
from aicf_mlir.text.parsing import parse_module

OPS = [op for op in (*NN.operations, *Optim.operations) if issubclass(op, IRDLOperation)]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_op_is_complete(op: type[IRDLOperation]) -> None:
    has_samples = any(sample.op_type() is op for sample in SAMPLES)
    assert has_samples != (op in WRITTEN_BEFORE), "no row in tests/py/support/samples"
    assert op in {**nn_interpreter.MEANINGS, **optim_interpreter.MEANINGS}, "no meaning in the interpreter"
    declared = [
        trait for trait in op.get_irdl_definition().traits.traits if isinstance(trait, NotDifferentiable)
    ]
    ways = [issubclass(op, DifferentiableInterface), issubclass(op, UnfoldableInterface), bool(declared)]
    assert sum(ways) == 1, "a vjp, or other ops to be written by, or a reason for having neither"
    assert not inspect.isabstract(op)


def test_every_meaning_is_of_a_registered_op() -> None:
    assert set(nn_interpreter.MEANINGS) == set(NN.operations)
    assert set(optim_interpreter.MEANINGS) == set(Optim.operations)


def printed(module: ModuleOp, generic: bool) -> str:
    stream = StringIO()
    Printer(stream=stream, print_generic_format=generic).print_op(module)
    return stream.getvalue() + "\n"


@sweep(SAMPLES)
def test_text_round_trips(sample: Sample) -> None:
    module = sample.module()
    round_trips(module)
    round_trips(run_pipeline(module, "decompose,lower"))


def round_trips(module: ModuleOp) -> None:
    """Custom and generic text read back as the same ops."""
    verify_module(module)
    custom, generic = printed(module, generic=False), printed(module, generic=True)
    for text in (custom, generic):
        parsed = parse_module(text)
        assert printed(parsed, generic=False) == custom
        assert printed(parsed, generic=True) == generic


def expected_results(sample: Sample, element: str, values: list[Array]) -> list[Array]:
    """What torch computes in float64, rounded to the result types."""
    operands = [torch.from_numpy(np.array(widen(value))) for value in values]
    results = sample.torch(*operands)
    results = results if isinstance(results, tuple) else (results,)
    function = next(op for op in sample.module(element).ops if isinstance(op, func.FuncOp))
    terminator = function.get_return_op()
    assert terminator is not None
    return [
        round_to(result.detach().double().numpy(), element_name(element_type(declared)))
        if result.is_floating_point()
        else result.numpy()
        for result, declared in zip(results, terminator.operands, strict=True)
    ]


UNITS = {"float64": 1e-12, "float32": 2.0**-20, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""One unit in the last place of half precision; for float64 room for another order of summation.

For float32 eight: a body has its numbers, such as pi or the root of 1/2, in the type that it computes in, and terms of the
size of 1 may cancel.
"""

NEAR_ZERO = {"float32": 0.125}
"""What an error of one such unit is taken for where the result is small, as a part of a unit of 1; elsewhere a hundredth."""


EXACT = {"int64": 0.0, "int32": 0.0, "bool": 0.0}


@pytest.mark.parametrize("element", ["f64", "f32", "f16", "bf16"])
@sweep(SAMPLES)
def test_meaning_is_that_of_torch(sample: Sample, element: str) -> None:
    values = sample.values(element)
    got = run_function(sample.module(element), values)
    for ours, theirs in zip(got, expected_results(sample, element, values), strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        unit = {**UNITS, **EXACT}[ours.dtype.name] * sample.units
        np.testing.assert_allclose(
            widen(ours), widen(theirs), rtol=unit, atol=unit * NEAR_ZERO.get(ours.dtype.name, 0.01)
        )
