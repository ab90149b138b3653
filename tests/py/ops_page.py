"""Writes docs/ops.md from the tables of the compiler: `python tests/py/ops_page.py`."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from aicf_mlir import _C, frontend
from aicf_mlir.frontend import aten_recurrent, aten_table
from aicf_mlir.frontend.call import Row
from aicf_mlir.frontend.types import ELEMENT_TYPES

PAGE = Path(__file__).parents[2] / "docs" / "ops.md"
TEXT = """\
# The ops of a step

Written by `python tests/py/ops_page.py` from the tables of the compiler; `tests/py/test_ops_page.py` holds this page to them.
[What of PyTorch can be trained](support.md) says it of layers, losses and optimizers. These are the ATen ops that functions and
methods of tensors are; one that is not here is taken apart by torch's own rule for it, and tried again.

{ops}

## What is refused of them

{refused}

## Element types

{dtypes}. Losses and parameters are of floating-point numbers; integers and booleans are indices, counters and masks, and
are computed exactly in their own types. An entry of a batch may be of bytes (uint8), as images are, which the step converts or
compares before it computes with them. Numbers in the code of a model are exact up to 2^53.

## Limits

- Shapes are fixed when the step is compiled; several batch shapes are several plans (`example=[…]`, `B=(…)`).
- A tensor that a kernel sees has at most {rank} dimensions, and no tensor is empty.
- Every tensor is a dense block of memory on one device: none is sparse, nested, quantized, fake, or of a
  subclass with arithmetic of its own.
- Nothing of Python (`.item()`, `if`, a shape made from values) depends on the values of the batch or of what the step changes.
  Of tensors that it only reads (edges, a mask, a grid of times) it may: their values are constants of the step, and a
  change is refused.
- Random numbers are those of a generator of our own (`seed=`, `step.seed(n)`): of torch's laws, but not the same numbers.
- A buffer may be updated by what is detached from the gradient (`self.mean.mul_(0.9).add_(0.1 * x.mean(0).detach())`,
  `self.count += 1`, `self.last = x.detach()`).
- A gradient is cut by `detach` and `no_grad`, and not taken inside the step (`autograd.grad`, `torch.func`).
- No op takes functions (`torch.cond`, `while_loop`, `scan`), and no autograd function has a backward of its own.
"""


DOTS = "…"

FAMILIES: dict[str, Mapping[str, Row]] = {
    "Element by element": aten_table.POINTWISE,
    "Along dimensions": aten_table.REDUCTIONS,
    "By index": aten_table.INDEXING,
    "Rearranging": aten_table.REARRANGING,
    "Recurrent layers": aten_recurrent.ROWS,
}


def families() -> dict[str, set[str]]:
    """The names of the ops of each family, without their overloads."""
    named = {name for family in FAMILIES.values() for name in family}
    others = {name: row for name, row in aten_table.TABLE.items() if name not in named}
    whole: dict[str, Mapping[str, Row]] = {**FAMILIES, "Products, shapes, random numbers, losses": others}
    ops = {
        title: {name.split(".")[1] for name in family if not name.startswith("aten._")}
        for title, family in whole.items()
    }
    return {title: names for title, names in ops.items() if names}


def forbidden() -> list[str]:
    """The reasons of every `raise Forbidden` in the rows of the table; dots for what it fills in."""
    found: list[str] = []
    for name in sorted(each.name for each in iter_modules(frontend.__path__)):
        module = import_module(f"{frontend.__name__}.{name}")
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            call = node.exc if isinstance(node, ast.Raise) else None
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Forbidden":
                found.append(reason_of(call.args[0], vars(module)))
    return list(dict.fromkeys(reason for reason in found if reason and reason.count(DOTS) < 3))


def reason_of(text: ast.expr, names: Mapping[str, Any]) -> str:
    """A string of the source, or the constant of that name; empty for a local one."""
    if isinstance(text, ast.Name):
        return str(names.get(text.id, ""))
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    return "".join(filled_in(part, names) for part in parts)


def filled_in(part: ast.expr, names: Mapping[str, Any]) -> str:
    """A piece of a string: itself, the value of a constant, or dots."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    value = part.value if isinstance(part, ast.FormattedValue) else part
    return str(names[value.id]) if isinstance(value, ast.Name) and value.id in names else DOTS


def render() -> str:
    """The page."""
    values: dict[str, Any] = {"rank": _C.MAX_RANK}
    values["ops"] = "\n\n".join(f"## {title}\n\n{listed(names)}." for title, names in families().items())
    values["refused"] = "\n".join(f"- {reason}" for reason in forbidden())
    values["dtypes"] = ", ".join(f"`{str(dtype).removeprefix('torch.')}`" for dtype in ELEMENT_TYPES)
    return "\n\n".join(map(filled, TEXT.split("\n\n"))).format(**values).rstrip() + "\n"


def listed(names: Iterable[str]) -> str:
    """Names in prose, a name a line, so that lines stay."""
    return ",\n".join(f"`{name}`" for name in sorted(names))


def filled(paragraph: str) -> str:
    """Prose in lines of the usual width; headings and lists as they are."""
    if paragraph.startswith(("#", "- ")):
        return paragraph
    return textwrap.fill(" ".join(paragraph.split()), 140, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(render())
