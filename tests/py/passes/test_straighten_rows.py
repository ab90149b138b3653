"""Rowwise launches whose operands lie along and across their rows give the same numbers with copies that turn them."""

from __future__ import annotations

import numpy as np
import pytest
from programs import run_pipeline

from aicf_mlir.dialects import kernel
from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.arithmetic import EXACT
from aicf_mlir.passes import straighten_rows
from aicf_mlir.text.parsing import parse_module

BODY = """
scalar.body @rows(%a: f32, %b: f32) -> (f32SUM) {
  %0 = arith.addf %a, %b : f32
  %sum = scalar.sum %0 : f32
  %2 = arith.subf %a, %sum : f32
LINES  scalar.yield %2YIELD : f32TYPE
}
"""
ACROSS = "tensor<6x5x7xf32, strided<[35, 1, 5]>>"
DENSE = "tensor<6x5x7xf32>"


def program(kinds: str, column_sums: bool) -> str:
    """A launch of two operands and a result; "a" in `kinds` where one lies across."""
    x, y, result = (ACROSS if kind == "a" else DENSE for kind in kinds)
    more = (", f32", "  %3 = scalar.column_sum %2 : f32\n", ", %3", ", f32") if column_sums else ("",) * 4
    body = BODY
    for word, text in zip(("SUM", "LINES", "YIELD", "TYPE"), more, strict=True):
        body = body.replace(word, text)
    sums, totals = (", %s", ", tensor<7xf32>") if column_sums else ("", "")
    made, returned = f"({result}{totals})", f"({DENSE}{totals})"
    names = ["%x" if kinds[0] == "a" else "%p", "%y" if kinds[1] == "a" else "%q"]
    lines = [
        f"{name} = kernel.view {given} : ({DENSE}) -> {ACROSS}"
        for name, given in (("%x", "%p"), ("%y", "%q"))
    ]
    lines += [
        f"%z{sums} = kernel.rowwise x({', '.join(names)})"
        f" {{body = @rows, reduced = 1, shape = array<i64: 6, 5, 7>}} : ({x}, {y}) -> {made}"
    ]
    lines += [f"%block = kernel.join %z : ({ACROSS}) -> {DENSE}"] if kinds[2] == "a" else []
    lines += [f"func.return {'%block' if kinds[2] == 'a' else '%z'}{sums} : {DENSE}{totals}"]
    return f"{body}func.func @f(%p: {DENSE}, %q: {DENSE}) -> {returned} {{\n" + "\n".join(lines) + "\n}"


@pytest.mark.parametrize(
    ("kinds", "column_sums", "copies"),
    [
        ("add", False, 1),
        ("dad", False, 1),
        ("dda", False, 1),
        ("ddd", False, 0),
        ("aaa", False, 0),  # neighbouring threads take neighbouring rows
        ("aad", False, 0),
        ("add", True, 1),
        ("aaa", True, 3),  # sums of columns are taken along rows alone
    ],
)
def test_what_lies_across_is_turned(
    kinds: str, column_sums: bool, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(straighten_rows, "LEAST", 1)
    text, draw = program(kinds, column_sums), np.random.default_rng(0)
    given = [draw.standard_normal((6, 5, 7)) for _ in range(2)]
    expected = run_function(parse_module(text), given, EXACT)
    made = run_pipeline(parse_module(text), 'straighten-rows{target="sm_90"}')
    assert sum(isinstance(op, kernel.CopyOp) for op in made.walk()) == copies
    for found, wanted in zip(run_function(made, given, EXACT), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
