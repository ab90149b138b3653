"""A body reads its results of 16 bits on as its launch gives them, or is refused; `written` makes one that does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from generated_cases import dense
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.interpreters.body import evaluate
from aicf_mlir.interpreters.numerics import round_to, widen
from aicf_mlir.ir import formula as F
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.formula import Scalar, trace
from aicf_mlir.ir.roundings import read_unrounded, written
from aicf_mlir.kernels.kernel import Kernel

SHAPE = (4, 8)


def kernel(body: Body, results: Sequence[str], operands: Sequence[str] = ("bf16",)) -> Kernel:
    given, made = ([dense(element, *SHAPE) for element in each] for each in (operands, results))
    return Kernel("map", "cpu", body, SHAPE, 0, tuple(given), tuple(made))


def both(x: Scalar) -> list[Scalar]:
    """A value and its square, which reads it with all digits."""
    y = x * 0.3
    return [y, y * y]


@pytest.mark.parametrize("element", ["bf16", "f16"])
def test_a_result_that_is_read_on_unrounded_is_refused(element: str) -> None:
    made = kernel(trace(["f32"], both), [element, "f32"])
    message = (
        f"result 0: the body reads it on with more digits than {element} has; read it through an arith.truncf"
    )
    with pytest.raises(VerifyException, match=message):
        made.verify()
    kernel(trace(["f32"], both), ["f32", element]).verify()  # nothing reads the square


RIGHT: dict[str, tuple[Callable[[Scalar], Any], list[str]]] = {
    "read as rounded": (lambda x: [y := x * 0.3, y.rounded("bf16") * 2.0], ["bf16", "f32"]),
    "chosen, then rounded": (lambda x: [y := x * 0.3, F.maximum(y, 0.0)], ["bf16", "bf16"]),
    "a parameter and its copy": (lambda x: [y := x * 0.3, y.rounded("bf16")], ["f32", "bf16"]),
    "a value and its cast": (lambda x: [y := x * 0.3, y.rounded("bf16"), y], ["bf16", "f32", "bf16"]),
    "an operand": (lambda x: [x, x * 0.3], ["bf16", "f32"]),
    "no 16 bits": (both, ["f32", "f32"]),
}
WRONG: dict[str, tuple[Callable[[Scalar], Any], list[str]]] = {
    "read on": (both, ["bf16", "f32"]),
    "chosen, and wide": (lambda x: [y := x * 0.3, F.maximum(y, 0.0)], ["bf16", "f32"]),
    "given as f32 too": (lambda x: [y := x * 0.3, y], ["bf16", "f32"]),
    "given in two types": (lambda x: [y := x * 0.3, y], ["bf16", "f16"]),
    "compared": (lambda x: [y := x * 0.3, F.select(y > x, x, -x)], ["bf16", "bf16"]),
    "rounded to another type": (lambda x: [y := x * 0.3, y.rounded("f16") * 2.0], ["bf16", "f32"]),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_holds_to_the_rule_verifies(name: str) -> None:
    formula, results = RIGHT[name]
    body = trace(["f32"], formula)
    kernel(body, results).verify()
    assert written(body, ["bf16"], results) == body


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_is_written_so_that_it_does(name: str) -> None:
    """With the same results: the rounded value is another one than that which the body goes on with."""
    formula, results = WRONG[name]
    body = trace(["f32"], formula)
    assert read_unrounded(body, ["bf16"], results) == 0
    right = written(body, ["bf16"], results)
    kernel(right, results).verify()
    x = widen(round_to(np.random.default_rng(0).standard_normal(SHAPE), "bf16"))
    for before, after, element in zip(
        evaluate(body, [x], SHAPE, (), [SHAPE] * 2),
        evaluate(right, [x], SHAPE, (), [SHAPE] * 2),
        results,
        strict=True,
    ):
        np.testing.assert_array_equal(
            round_to(np.asarray(before), element), round_to(np.asarray(after), element)
        )


def test_an_operand_of_f32_has_more_digits_than_its_cast() -> None:
    body = trace(["f32"], lambda x: [x, x * 2.0])
    assert read_unrounded(body, ["f32"], ["bf16", "f32"]) == 0
    said = trace(["f32"], lambda x: list(reversed([x * 2.0, x.rounded("bf16")])))
    assert written(body, ["f32"], ["bf16", "f32"]) == said


def test_a_product_has_more_digits_than_its_tensor() -> None:
    """The first operand of a gemm_map is a sum in f32, whatever is multiplied."""
    body = trace(["f32"], lambda z: [z, z * 2.0])
    assert read_unrounded(body, [""], ["bf16", "f32"]) == 0
    assert read_unrounded(body, ["bf16"], ["bf16", "f32"]) is None
