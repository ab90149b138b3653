"""Almost valid text: programs with a piece exchanged are refused at a place, or read and printed alike."""

from __future__ import annotations

import random
import re
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer

from aicf_mlir.diagnostics import LocatedError
from aicf_mlir.parsing import make_context, parse_module
from aicf_mlir.stages import Snapshots, run_stages

EXAMPLES = Path(__file__).parents[2] / "examples"

TYPES = """tensor<f32> tensor<0xf32> tensor<?x4xf32> memref<4xf16> i1 tensor<4x5x6xf64> f80 index none
    vector<4xf32> tensor<*xf32> tensor<4xi3> tensor<2xcomplex<f32>> tensor<3xtensor<4xf32>> memref<0x3xf32>"""
VALUES = """-1 0 1e400 -1.5 "x" [] {} {a} 99999999999999999999 0x7ff8000000000000:f64 dense<1>:tensor<2xi32>
    unit [1,"a"] array<i64:-1,99> array<i64> array<f32:1.0> tensor<4xf32> @a::@b 1:i1 9223372036854775807
    "\\00" "é" true"""
KINDS = {
    r"(?:tensor|memref)<[^<>]*>": TYPES,
    r'(?<== )(?:"[^"]*"|-?[\d.e+-]+|true|false|@[\w.]+|array<[^>]*>|\[[^\]]*\]|\{[^}]*\})': VALUES,
    r"(?<== )(?:\(|[a-z]).*?(?=[,}])": VALUES,
    r"%[\w.]+": "%x %none",
    r"@[\w.]+": "@x @none",
    r'"[^"]*"': '"" "x"',
    r"\b(?:nn|optim|kernel|plan)\.\w+\b": "nn.none func.call test.op builtin.module",
    r"(?<![\w.%@x<])-?\d+(?![\w.])": "-1 -256 0 255 256 9223372036854775807 18446744073709551616",
    r"\b\w+(?= =)": "none id",
}
"""What is exchanged, as a pattern, and what takes its place beside what else the pattern finds."""


def generic(module: ModuleOp) -> str:
    stream = StringIO()
    Printer(stream, print_generic_format=True).print_op(module)
    return stream.getvalue()


@cache
def programs() -> list[str]:
    """The examples at every stage, in custom and in generic form."""
    texts: list[str] = []
    for path in sorted(EXAMPLES.glob("*.mlir")):
        snapshots = Snapshots()
        run_stages(parse_module(path.read_text()), make_context(), after_each=snapshots)
        for stage in ("nn", "step", "fused", "kernel", "buffers", "plan"):
            texts += [snapshots.text(stage), generic(snapshots[stage])]
    return texts


@cache
def substitutes(pattern: str) -> list[str]:
    found = {text for program in programs() for text in re.findall(pattern, program)}
    return sorted(found) + KINDS[pattern].split()


def mutated(choose: random.Random) -> str:
    text = choose.choice(programs())
    for _ in range(choose.choice([1, 1, 2])):
        pattern = choose.choice(list(KINDS))
        if places := list(re.finditer(pattern, text)):
            place = choose.choice(places)
            text = text[: place.start()] + choose.choice(substitutes(pattern)) + text[place.end() :]
    return text


@pytest.mark.parametrize("seed", range(8))
def test_mutated_programs_are_refused_or_read(seed: int) -> None:
    choose = random.Random(seed)
    for _ in range(20):
        text = mutated(choose)
        try:
            module = parse_module(text, "in.mlir")
        except LocatedError as error:
            assert str(error).startswith("in.mlir:")
            continue
        printed = str(module)
        assert str(parse_module(printed)) == printed
        assert str(parse_module(generic(module))) == printed
