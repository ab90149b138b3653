"""`canonicalize`, `cse` and `dce` keep every bit of every result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from programs import run_pipeline
from samples import NN_SAMPLES, Sample, sweep
from samples.sample import SPECIAL
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.numerics import NUMPY_TYPES, Array
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.text.parsing import parse_module

LIT = Path(__file__).parents[2] / "lit/dialects/nn/canonicalize.mlir"
CLEANING = "canonicalize,cse,dce"


def same_bits(a: Array, b: Array) -> bool:
    """Equal in type, shape and every bit but those that tell one NaN from another."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    nan = np.isnan(a.astype(np.float64))
    bytes_a, bytes_b = (np.where(nan, np.zeros_like(x), x).tobytes() for x in (a, b))
    return bytes_a == bytes_b and np.array_equal(nan, np.isnan(b.astype(np.float64)))


@sweep(NN_SAMPLES)
def test_every_sample(sample: Sample) -> None:
    values = sample.values()
    before = run_function(sample.module(), values)
    after = run_function(run_pipeline(sample.module(), CLEANING), values)
    assert all(same_bits(a, b) for a, b in zip(before, after, strict=True))


def lit_functions() -> list[func.FuncOp]:
    return [op for op in parse_module(LIT.read_text()).ops if isinstance(op, func.FuncOp)]


@pytest.mark.parametrize("function", lit_functions(), ids=lambda function: function.sym_name.data)
def test_every_pattern(function: func.FuncOp) -> None:
    """The functions of the lit test: each fires a pattern, on integers (exact sums) and on special values."""
    module = ModuleOp([function.clone()])
    rewritten = run_pipeline(module, CLEANING)
    has_product = any(op.name in ("nn.matmul", "nn.linear") for op in function.walk())
    for numbers in (np.arange(-7.0, 8.0), np.array(SPECIAL)):
        if has_product and numbers.size == len(SPECIAL):
            continue  # which of its sums overflows first depends on the order of a product
        values = [
            np.resize(np.roll(numbers, index), shape_of(argument)).astype(
                NUMPY_TYPES[element_name(element_type(argument))]
            )
            for index, argument in enumerate(function.args)
        ]
        before, after = run_function(module, values), run_function(rewritten, values)
        assert all(same_bits(a, b) for a, b in zip(before, after, strict=True))
