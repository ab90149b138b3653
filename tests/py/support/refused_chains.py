"""What the schema of kernel.back_to_back refuses, a row for each rule, with the message."""

# ruff: noqa: E501  (a rule is a row, a row is a line)
from __future__ import annotations

from typing import Any

Specs = list[tuple[str, tuple[int, ...]]]
Named = dict[str, Specs]
Row = tuple[str, Named, Named, dict[str, Any], str]

LINKS = ["b0.T x0 -> write next sum", "b1 -> write, sum"]


def bf16(*shapes: tuple[int, ...]) -> Specs:
    return [("bf16", shape) for shape in shapes]


INPUTS: Named = {"a": bf16((9, 4)), "b": bf16((3, 4), (3, 5)), "x": [("f32", (9, 3))]}
"""Of LINKS: 4 columns become 3, and those 5."""
OUTPUTS: Named = {"y": [*bf16((9, 3), (3,), (9, 5)), ("f32", (5,))]}


def row(
    message: str,
    links: list[str] = LINKS,
    bodies: int | None = None,
    behind: list[str] | None = None,
    **changed: Specs,
) -> Row:
    """A use that was right but for what is changed."""
    attrs: dict[str, Any] = {"bodies": ["f"] * (len(links) if bodies is None else bodies), "links": links}
    attrs |= {} if behind is None else {"behind": behind}
    inputs = {name: changed.get(name, specs) for name, specs in INPUTS.items()}
    return "back_to_back", inputs, {"y": changed.get("y", OUTPUTS["y"])}, attrs, message


def first(link: str) -> list[str]:
    return [link, LINKS[1]]


ACCEPTED = row("")
REFUSED: list[Row] = [
    ("back_to_back", INPUTS, OUTPUTS, {"links": LINKS}, "needs the attribute bodies"),
    ("back_to_back", INPUTS, OUTPUTS, {"bodies": ["f"], "links": "b0"}, "attribute 'links': expected a list of strings, got 'b0' of type str"),
    ("back_to_back", INPUTS, OUTPUTS, {"bodies": ["f", 1], "links": LINKS}, "attribute 'bodies': expected a string, got 1 of type int"),
    row("a: expected element type bf16, got f16[9, 4]", a=[("f16", (9, 4))]),
    row("b: expected one tensor or more, got none", b=[]),
    row("b[0]: expected f16 or bf16, got f32[3, 4]", b=[("f32", (3, 4)), *bf16((3, 5))]),
    row("a: expected rank 2, got bf16[9]", a=bf16((9,))),
    row("b[1]: expected element type bf16, got f16[3, 5]", b=[*bf16((3, 4)), ("f16", (3, 5))]),
    row("b[1]: expected rank 2, got bf16[3]", b=bf16((3, 4), (3,))),
    row("b[2]: expected a link that multiplies by it", b=bf16((3, 4), (3, 5), (3, 5))),
    row("links: expected one or more, got none", []),
    row("bodies: expected one for each of 2 links, got 1", bodies=1),
    row("links[0]: expected what it takes -> what it gives, got 'b0.T x0'", first("b0.T x0")),
    row("links[0]: expected what it takes -> what it gives, got '-> write next'", first("-> write next")),
    row("links[0]: expected what it takes -> what it gives, got 'b0.T -> '", first("b0.T -> ")),
    row("links[0]: expected b with a number, got 'x0'", first("x0 -> write next")),
    row("links[0]: expected b with a number, got 'b'", first("b.T -> write next")),
    row("links[0]: there is no b2 here; of b there are 2", first("b2 -> write next")),
    row("links[0]: expected a product over 4 columns, got b0 of bf16[3, 4]", first("b0 -> write next")),
    row("links[1]: expected a product over 3 columns, got b1.T of bf16[3, 5]", [LINKS[0], "b1.T -> write"]),
    row("links[0]: expected x or y with a number, got 'z0'", first("b0.T z0 -> write next")),
    row("links[0]: there is no x1 here; of x there are 1", first("b0.T x1 -> write next")),
    row("links[0]: there is no y0 here; of y there are 0", first("b0.T y0 -> write next")),
    row("links[0]: it takes x0, expected shape [9, 3], got f32[9, 4]", x=[("f32", (9, 4))]),
    row("links[1]: it takes y0 of 3 columns, expected 5", [LINKS[0], "b1 y0 -> write, sum"]),
    row("links[0]: a value has uses, each once: write, next, sum and keep, then f16, bf16 or f32; got 'read next'", first("b0.T -> read next")),
    row("links[0]: a value has uses, each once: write, next, sum and keep, then f16, bf16 or f32; got 'next i32'", first("b0.T -> next i32")),
    row("links[0]: what is written has its type there, got 'write next bf16'", first("b0.T -> write next bf16")),
    row("links[0]: expected a value of bf16 for the next link, got 'next'", first("b0.T -> next")),
    row("links[0]: expected one value for the next link, got 0", first("b0.T -> write sum")),
    row("links[1]: expected no value for the next link, got 1", [LINKS[0], "b1 -> write next, sum"], y=bf16((9, 3), (3,), (9, 5), (5,))),
    row("y[0]: expected bf16[9, 3], got bf16[9, 4]", y=bf16((9, 4))),
    row("y[1]: expected bf16[3], got bf16[4]", y=bf16((9, 3), (4,))),
    row("y[0]: expected element type bf16, got f32[9, 3]", y=[("f32", (9, 3))]),
    row("y[1]: expected element type f32, f64, f16 or bf16, got i32[3]", y=[*bf16((9, 3)), ("i32", (3,))]),
    row("y: expected more tensors than 3, as links[1] says", y=OUTPUTS["y"][:3]),
    row("y: expected 4 tensors, as links says, got 5", y=[*OUTPUTS["y"], ("f32", (5,))]),
    row("behind: expected a, or y0.T y1 or y0.T a with numbers of values, got 'y0 a'", behind=["y0 a"]),
    row("behind: expected a, or y0.T y1 or y0.T a with numbers of values, got 'y0.T'", behind=["y0.T"]),
    row("behind: expected y with a number, got 'x0'", behind=["x0.T a"]),
    row("behind: there is no y3 here; of y there are 3", behind=["y0.T y3"]),
    row("behind: y2 is not rounded to bf16, so that it could be multiplied", behind=["y0.T y2"]),
    row("behind: 'a' is an a of f32 as it is rounded, got bf16[9, 4]", behind=["a"]),
    row("behind: expected 'a' once, and first", behind=["y0.T a", "a"], a=[("f32", (9, 4))], y=[*OUTPUTS["y"], *bf16((3, 4), (9, 4))]),
    row("y: expected more tensors than 4, as behind says", behind=["y0.T a"]),
    row("y[4]: expected bf16[3, 5], got bf16[3, 4]", behind=["y0.T y1"], y=[*OUTPUTS["y"], *bf16((3, 4))]),
    row("y[4]: expected element type f32, f64, f16 or bf16, got i32[3, 4]", behind=["y0.T a"], y=[*OUTPUTS["y"], ("i32", (3, 4))]),
    row("y[4]: expected element type bf16, got f32[9, 4]", behind=["a"], a=[("f32", (9, 4))], y=[*OUTPUTS["y"], ("f32", (9, 4))]),
]  # fmt: skip
