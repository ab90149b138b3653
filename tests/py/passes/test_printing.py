"""Text that a person can read and diff: no line grows with the model, and broken text reads back."""

from __future__ import annotations

from difflib import unified_diff

import deep
import pytest
from xdsl.parser import Parser

from aicf_mlir.ir.diagnostics import LocatedError
from aicf_mlir.ir.printing import WIDTH, to_text
from aicf_mlir.stages import STAGE_NAMES
from aicf_mlir.text.parsing import make_context, parse_module

LONGEST = 160
"""No line of any stage is longer, whatever the number of layers."""


@pytest.mark.parametrize("stage", STAGE_NAMES)
def test_no_line_grows_with_the_layers(stage: str) -> None:
    text = deep.stages().text(stage)
    assert max(map(len, text.splitlines())) <= LONGEST
    assert not any(line.endswith(" ") for line in text.splitlines())


@pytest.mark.parametrize("stage", STAGE_NAMES)
def test_broken_text_is_read_again_and_stays_the_same(stage: str) -> None:
    text = deep.stages().text(stage)
    assert to_text(parse_module(text)) == text
    assert to_text(Parser(make_context(), text).parse_module()) == text, "xDSL's own parser"


def test_the_breaks_are_white_space_only() -> None:
    module = deep.stages(3)["step"]
    assert "".join(to_text(module).split()) == "".join(str(module).split())


def test_the_generic_form_has_an_op_a_line() -> None:
    module = deep.stages(3)["step"]
    labels = closed = len(list(module.ops))
    lines = to_text(module, generic=True).splitlines()
    assert len(lines) == sum(1 for _ in module.walk()) + labels + closed + 1


def test_one_more_layer_is_its_own_lines() -> None:
    """An argument has its own line, so a header with another layer differs in the lines of that layer only."""
    before, after = (deep.stages(layers).text("nn").splitlines() for layers in (20, 21))
    before, after = ([line.rstrip(",") for line in lines if "aicf.role" in line] for lines in (before, after))
    changed = list(unified_diff(before, after, lineterm="", n=0))[2:]
    assert [line[:1] for line in changed] == ["@", "+", "+"]
    assert ["40.weight" in line for line in changed] == [False, True, False]


def position(text: str, piece: str) -> tuple[int, int]:
    line, column = next(
        (number, line.index(piece)) for number, line in enumerate(text.splitlines(), 1) if piece in line
    )
    return line, column + 1


@pytest.mark.parametrize(
    ("stage", "piece", "wrong"),
    [
        ("step", "tensor<8x8xf32> {", "tensor<8x8xf33> {"),  # in the header of the function
        ("step", "%p0.weight.next,", "%nothing,"),  # among the operands of the return
        ("fused", "      tensor<8x8xf32>,", "      tensor<8x8xf33>,"),  # among the types of a launch
        ("plan", "@_0.weight,", "@0.weight,"),  # among the operands of the optimizer's launch
    ],
)
def test_an_error_in_broken_text_is_at_its_line_and_column(stage: str, piece: str, wrong: str) -> None:
    text = deep.stages(20).text(stage)
    start = text.rindex("func.return") if wrong == "%nothing," else 0
    broken = text[:start] + text[start:].replace(piece, wrong, 1)
    assert broken != text
    with pytest.raises(LocatedError) as error:
        parse_module(broken, "step.mlir")
    place = error.value.diagnostic.place
    line, column = position(broken, wrong)
    assert place.line == line
    assert place.column is not None and column <= place.column <= column + len(wrong)


def test_an_op_whose_results_stand_on_several_lines_is_found() -> None:
    """An error of the verifier stands at the name of the op, not at its first result."""
    text = deep.stages(20).text("fused")
    broken = text.replace("maximize = true", "").replace(
        "groups = array<i64: 0, ", "groups = array<i64: 7, ", 1
    )
    with pytest.raises(LocatedError) as error:
        parse_module(broken, "step.mlir")
    place = error.value.diagnostic.place
    assert place.text is not None and place.column is not None
    assert place.text[place.column - 1 :].startswith("kernel.adam_step")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (  # short enough: one line
            "func.func @f(%x: tensor<4xf32>) {\n  func.return\n}",
            "func.func @f(%x: tensor<4xf32>) {",
        ),
        (  # a name that is longer than a line is not broken
            f"func.func @{'f' * 200}(%x: tensor<4xf32>) {{\n  func.return\n}}",
            f"func.func @{'f' * 200}(",
        ),
    ],
)
def test_what_fits_stays_on_its_line(text: str, expected: str) -> None:
    assert to_text(parse_module(text)).splitlines()[1].startswith(f"  {expected}")


def test_a_list_is_broken_at_the_width() -> None:
    operands = ", ".join(f"%a{i}" for i in range(60))
    types = ", ".join(["i64"] * 60)
    arguments = ", ".join(f"%a{i}: i64" for i in range(60))
    module = parse_module(
        f"func.func @f({arguments}) -> ({types}) {{\n  func.return {operands} : {types}\n}}"
    )
    lines = to_text(module).splitlines()
    assert lines[1:4] == ["  func.func @f(", "    %a0: i64,", "    %a1: i64,"]
    at = lines.index("    func.return")
    assert lines[at + 1 : at + 3] == ["      %a0,", "      %a1,"]
    assert lines[at + 60 : at + 63] == ["      %a59", "      : i64,", "      i64,"]
    assert max(map(len, lines)) <= WIDTH
