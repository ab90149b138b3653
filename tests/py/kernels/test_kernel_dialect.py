"""The kernel dialect and the runtime agree on what there is; attributes convert both ways."""

from __future__ import annotations

import math

import pytest
import torch
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, f32, i32
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects import kernel
from aicf_mlir.interpreters.kernel import MEANINGS
from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.ir.attributes import format_float, from_attribute, to_attribute
from aicf_mlir.ir.dtypes import ELEMENT_TYPES, element_name
from aicf_mlir.ir.element_types import DTYPES, byte_size
from aicf_mlir.ir.registry import schemas


def test_every_kind_of_the_runtime_is_an_op_with_a_meaning() -> None:
    kinds = set(schemas())
    assert {op.name.removeprefix("kernel.") for op in kernel.LAUNCHES} == kinds
    assert set(MEANINGS) == kinds


def test_element_types_agree_with_numpy() -> None:
    for row in DTYPES:
        assert element_name(ELEMENT_TYPES[row.name]) == row.name
        assert byte_size(row.name, (2, 3)) == 6 * row.nbytes == 6 * NUMPY_TYPES[row.name].itemsize
        assert NUMPY_TYPES[row.name].name == row.library
        assert getattr(torch, row.library).itemsize == row.nbytes


@pytest.mark.parametrize(
    "value", [True, False, 0, -100, 2**62, 0.0, -2.5e-300, "relu", [], [0, -1, 2]], ids=repr
)
def test_attributes_convert_both_ways(value: bool | int | float | str | list[int]) -> None:
    back = from_attribute("name", to_attribute(value))
    assert (type(back), back) == (type(value), value)


@pytest.mark.parametrize("attribute", [ArrayAttr([]), IntegerAttr(1, i32), FloatAttr(1.0, f32)], ids=str)
def test_other_attributes_are_refused_by_name(attribute: ArrayAttr | IntegerAttr | FloatAttr) -> None:
    with pytest.raises(VerifyException, match="attribute 'slope' must be true, false, an integer"):
        from_attribute("slope", attribute)


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, 0.1, 1e30, 1e-30, 5e-324, 1.7976931348623157e308, 1 / 3])
def test_floats_print_short_and_exact(value: float) -> None:
    text = format_float(value)
    assert "." in text, "the lexer reads a float only with a point"
    assert math.copysign(1, float(text)) == math.copysign(1, value)
    assert float(text) == value


def test_floats_that_are_no_numbers_print_their_bits() -> None:
    assert format_float(math.inf) == "0x7FF0000000000000 : f64"
    assert format_float(-math.inf) == "0xFFF0000000000000 : f64"
    assert format_float(math.nan) == "0x7FF8000000000000 : f64"
