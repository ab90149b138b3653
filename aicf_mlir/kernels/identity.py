"""The name of a generated kernel: a hash of every field that it has, so that no field of a new kind can be forgotten.

Its schedule alone is not in it: that is beside it in the kernel id, as text.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from typing import Any, cast

from aicf_mlir.ir.body import Body
from aicf_mlir.kernels.tensor import Tensor

PLAIN = (str, int, float, bool, type(None))


def kernel_id(kernel: Any, generator: int) -> str:
    """The same fields and the same generator give the same id on every machine."""
    text = f"{generator} {written(kernel, aligned=kernel.target != 'cpu')}"
    return f"gen_{kernel.kind}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def written(value: object, aligned: bool) -> str:
    """A value as text; a body by its digest, a tensor without its alignment for code that takes every address.

    TypeError for a value that has no order of its own, or no text that is the same on every machine.
    """
    if isinstance(value, Body):
        return value.digest
    if isinstance(value, Tensor) and not aligned:
        return repr((value.element, value.shape, value.strides))
    if is_dataclass(value) and not isinstance(value, type):
        parts = (
            f"{each.name}={written(getattr(value, each.name), aligned)}"
            for each in fields(value)
            if each.name != "schedule"
        )
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, tuple):
        return f"({', '.join(written(each, aligned) for each in cast(tuple[object, ...], value))})"
    if isinstance(value, PLAIN):
        return repr(value)
    raise TypeError(
        "expected numbers, texts, tuples, bodies and dataclasses of these in a generated kernel, got"
        f" {type(value).__name__}; give it a field of such a type"
    )
