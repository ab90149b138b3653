"""Almost valid text: programs with pieces exchanged, dropped, repeated or moved, through the tools as files are.

Whatever it is, aicf-opt reads it and prints it alike, or refuses it at a place; aicf-run runs it or refuses it.
"""

from __future__ import annotations

import contextlib
import io
import random
import re
import sys
from collections.abc import Sequence
from functools import cache
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer

from aicf_mlir.stages import Snapshots, run_stages
from aicf_mlir.text.parsing import make_context, parse_module
from aicf_mlir.tools import aicf_opt, aicf_run

STAGES = ("nn", "step", "fused", "kernel", "buffers", "plan")

EXAMPLES = Path(__file__).parents[3] / "examples"

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
        for stage in STAGES:
            texts += [snapshots.text(stage), generic(snapshots[stage])]
    return texts


@cache
def substitutes(pattern: str) -> list[str]:
    found = {text for program in programs() for text in re.findall(pattern, program)}
    return sorted(found) + KINDS[pattern].split()


def exchange(choose: random.Random, text: str) -> str:
    """Another text of the same kind in one place."""
    pattern = choose.choice(list(KINDS))
    if places := list(re.finditer(pattern, text)):
        place = choose.choice(places)
        text = text[: place.start()] + choose.choice(substitutes(pattern)) + text[place.end() :]
    return text


def lines(choose: random.Random, text: str) -> str:
    """A line dropped, repeated, moved, or taken from another program."""
    rows = text.split("\n")
    at, to = choose.randrange(len(rows)), choose.randrange(len(rows))
    match choose.randrange(4):
        case 0:
            del rows[at]
        case 1:
            rows.insert(to, rows[at])
        case 2:
            rows.insert(to, rows.pop(at))
        case _:
            rows[at] = choose.choice(choose.choice(programs()).split("\n"))
    return "\n".join(rows)


def characters(choose: random.Random, text: str) -> str:
    """A few characters dropped, repeated or replaced."""
    at = choose.randrange(len(text))
    length = choose.choice([1, 1, 2, 5, 40])
    piece = choose.choice(["", text[at : at + length] * 2, choose.choice('<>(){}[]"%@!#^,:=-x0 \n\\é')])
    return text[:at] + piece + text[at + length :]


def mutated(seed: int) -> str:
    """A program with one to three changes."""
    choose = random.Random(seed)
    text = choose.choice(programs())
    for _ in range(choose.choice([1, 1, 2, 3])):
        text = choose.choice([exchange, exchange, lines, characters])(choose, text)
    return text


def run_tool(tool: object, arguments: Sequence[str], text: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a tool in this process."""
    out, err, before = StringIO(), StringIO(), sys.stdin
    sys.stdin = SimpleNamespace(buffer=io.BytesIO(text.encode()))  # pyright: ignore[reportAttributeAccessIssue]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = tool.main(arguments)  # pyright: ignore[reportAttributeAccessIssue]
    finally:
        sys.stdin = before
    return code, out.getvalue(), err.getvalue()


def check_text(text: str) -> str:
    """`refused`, `read`, `ran`, or the fault of one text."""
    code, printed, err = run_tool(aicf_opt, ["-"], text)
    if code == 1 and err.startswith("<stdin>:") and "internal error" not in err:
        return "refused"
    if code != 0 or err:
        return f"fault: aicf-opt exits {code}\n{err}"
    if run_tool(aicf_opt, ["-"], printed) != (0, printed, ""):
        return "fault: what aicf-opt prints is not read alike"
    if run_tool(aicf_opt, ["-"], run_tool(aicf_opt, ["-", "--print-op-generic"], text)[1])[1] != printed:
        return "fault: the generic form is not read alike"
    code, _, err = run_tool(aicf_run, ["-"], text)
    if code == 0 and not err:
        return "ran"
    if code == 1 and err and "internal error" not in err:
        return "read"
    return f"fault: aicf-run exits {code}\n{err}"


def run_job(job: str) -> str:
    """The outcome of the mutant of a seed."""
    return check_text(mutated(int(job)))
