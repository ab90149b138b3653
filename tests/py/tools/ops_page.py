"""Writes docs/ops.md from the tables of the compiler: `python tests/py/tools/ops_page.py`."""

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
from aicf_mlir.frontend.call import AtenRule
from aicf_mlir.frontend.complex_rules import RULES
from aicf_mlir.frontend.types import ELEMENT_TYPES

PAGE = Path(__file__).parents[3] / "docs" / "ops.md"
TEXT = """\
# The ops of a step

`python tests/py/tools/ops_page.py` writes this page from the tables of the compiler. `tests/py/tools/test_ops_page.py` compares
the page with them. [Support](support.md) covers layers, losses and optimizers.

These are the ATen ops to which functions and methods of tensors lead. An op that is not listed is decomposed by torch's own rule
and tried again.

{ops}

## Which uses are refused?

{refused}

## Which element types are there?

{dtypes}. Losses and parameters are floating-point numbers. Integers and booleans are indices, counters and masks, and are
computed exactly in their own types. A batch entry may be bytes (uint8), as images are. The step converts or compares bytes before
it computes with them, or computes as torch does, modulo 256 (`+ - * & | ^`). Numbers in the code of a model are exact up to 2^53.

Complex numbers (`complex64`, `complex128`) are pairs of real ones. They may be parameters, buffers and values of a step, and all
of `torch.fft` is supported. A batch and an output are real: use `torch.view_as_real` there.

## What are the limits?

- Shapes are fixed when the step is compiled. Several batch shapes are several plans (`example=[…]`, `B=(…)`).
- A tensor that a kernel sees has at most {rank} dimensions, and no tensor is empty.
- Every tensor is a dense block of memory on one device. None is sparse, nested, quantized, fake, or of a subclass with arithmetic
  of its own.
- Nothing in Python (`.item()`, `if`, a shape made from values) depends on the values of the batch or of what the step changes.
- Python may depend on the values of tensors that the step only reads (edges, a mask, a grid of times). They are constants of the
  step, and a change is refused.
- The elements under a mask (`x[mask]`, `masked_select`, `nonzero`, `torch.where(mask)`) keep the places of all, beside the mask.
  What acts on each row alone and sums, means, extremes and losses over them are as in torch. `len(x)` and `x.shape[0]` are
  tensors. A branch on their number (`if mask.any()`, `if len(x) > 0`) takes the side that it takes if all are selected. A batch
  for which it takes the other side skips the step, with `DataError`. What needs their number in Python, or puts them in order, is
  refused.
- Random numbers come from a generator of our own (`seed=`, `step.seed(n)`). They follow torch's laws, but are not the same
  numbers.
- A buffer may be updated by a value that is detached from the gradient (`self.mean.mul_(0.9).add_(0.1 * x.mean(0).detach())`,
  `self.count += 1`, `self.last = x.detach()`). An attribute of a module that is no buffer or parameter is after each step
  as it was before: `self.calls += 1` with a number counts nothing, and a warning says so. Make it a buffer, or return it. In the
  body of `compile_step` it counts, on the host after each step.
- A gradient is cut by `detach` and `no_grad`. [Gradients in the loss](guide/derivatives.md) are of any order.
- No op takes functions (`torch.cond`, `while_loop`, `scan`).
"""


DOTS = "…"

FAMILIES: dict[str, Mapping[str, AtenRule]] = {
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
    whole: dict[str, Mapping[str, AtenRule]] = {
        **FAMILIES,
        "Products, shapes, random numbers, losses": others,
    }
    ops = {
        title: {name.split(".")[1] for name in family if not name.startswith(("aten._", "aicf_"))}
        for title, family in whole.items()
    }
    ops["Complex numbers"] = {str(op).split(".")[1] for op in RULES if str(op).startswith("aten.")}
    ops["Complex numbers"] = {name for name in ops["Complex numbers"] if not name.startswith("_")}
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
    if paragraph.startswith(("#", "- ", "|")):
        return paragraph
    return textwrap.fill(" ".join(paragraph.split()), 140, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(render())
