"""Inputs for every kernel op: ragged shapes, normals, special values, and integers (sums exact in any order).

`cases(op, dtype)` is the table that the kernel tests of every device and the sanitizers read. It has what the samples of nn lower
to. For what they do not reach it has the `CASES` of the file with the name of the op's folder in csrc/kernels. An op with neither
fails the tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from pathlib import Path

from kernel_cases.case import FLOATS, Array, Case, Generator, Maker, Spec
from kernel_cases.from_samples import of_samples

__all__ = [
    "FAMILIES",
    "FLOATS",
    "GENERATORS",
    "Array",
    "Case",
    "Generator",
    "Maker",
    "Spec",
    "cases",
    "family_of",
    "generated",
]

KERNELS = Path(__file__).parents[4] / "csrc" / "kernels"
FAMILIES = {path.parent.name: path.read_text() for path in sorted(KERNELS.glob("*/variants.cpp"))}
"""The folders with kernels, and the text of their schemas."""
POINTWISE = "eltwise"
"""The family whose ops are rows of a table, ops.h."""


def of_family(family: str) -> dict[str, Generator]:
    """The cases in the file of a family; none where samples reach all of it."""
    there = Path(__file__).with_name(f"{family}.py").exists()
    return import_module(f"kernel_cases.{family}").CASES if there else {}


GENERATORS: dict[str, Generator] = {op: make for family in FAMILIES for op, make in of_family(family).items()}
"""By op name without the dialect: cases beside its samples."""


def family_of(op: str) -> str:
    """The folder of a kernel op."""
    homes = [family for family, text in FAMILIES.items() if re.search(rf'"{op}",\s+"[^"]+', text)]
    return homes[0] if homes else POINTWISE


def generated(op: str, make: Maker) -> Iterator[Case]:
    """Every case of the op for operands of `make.dtype`."""
    yield from of_samples(make, op)
    yield from GENERATORS.get(op, lambda _: ())(make)


@lru_cache(maxsize=len(FLOATS))  # the variants of an op are tested one after the other
def cases(op: str, dtype: str) -> tuple[Case, ...]:
    """Every case of the op for operands of `dtype`."""
    return tuple(generated(op, Maker(dtype)))
