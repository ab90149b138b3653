"""Functions written out in arithmetic: no calls, no branches, the same bits on every processor."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from aicf_mlir.codegen.functions import angles, exponential, narrow, philox, rounding, single
from aicf_mlir.ir.body import PHILOX, Body
from aicf_mlir.ir.formula import Scalar, trace

Formula = Callable[..., Scalar]

F32: dict[str, Formula] = {
    "math.exp": single.exp,
    "math.tanh": single.tanh,
    "math.erf": single.erf,
    **{
        f"math.{name}": getattr(exponential, name)
        for name in (
            *("log", "log2", "log10", "log1p", "exp2", "expm1", "sinh", "cosh", "asinh", "acosh", "atanh"),
            *("cbrt", "powf"),
        )
    },
    **{
        f"math.{name}": getattr(angles, name)
        for name in ("sin", "cos", "tan", "atan", "atan2", "asin", "acos")
    },
}
"""The formula of each operation on f32."""
BOTH: dict[str, Formula] = {
    f"math.{name}": getattr(rounding, name)
    for name in ("roundeven", "trunc", "round", "floor", "ceil", "rsqrt")
}
"""The formula of each operation on f32 and on f64."""

LIBM: tuple[tuple[str, int], ...] = (
    *(
        (name, 1)
        for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cos", "cosh", "erf")
    ),
    *((name, 1) for name in ("exp", "exp2", "expm1", "log", "log10", "log1p", "log2", "sin", "sinh", "tan")),
    *(("tanh", 1), ("atan2", 2), ("pow", 2), ("fma", 3)),
)
"""(name in C, number of arguments, all of them and the result double): entry k of the table of functions."""
LIBM_ENTRY: dict[str, int] = {
    f"math.{'powf' if name == 'pow' else name}": number for number, (name, _) in enumerate(LIBM)
}
"""The entry in the table of each operation on f64."""
PRODUCTS = tuple(f"product_{element}" for element in ("f32", "f64", "f16", "bf16"))
"""The matrix products, which follow in the table: csrc/kernels/gemm/cpu_product.h."""
CALLED = (*(name for name, _ in LIBM), *PRODUCTS)
"""The whole table of functions that code of the CPU calls."""


@cache
def formula(op: str, type_: str, count: int) -> Body | None:
    """The body of an operation on `count` operands of its type; None if there is an instruction or a call."""
    if op == PHILOX:
        return trace([type_] * count, philox.philox)
    function = (F32.get(op) if type_ == "f32" else None) or BOTH.get(op)
    return None if function is None else trace([type_] * count, function)


@cache
def fused() -> Body:
    """A fused multiply-add of f32 for a processor that has none."""
    return trace(["f32"] * 3, narrow.fma)


@cache
def rare(name: str, type_: str) -> Body:
    """The body of a formula that `codegen.rarely` names."""
    return trace([type_], angles.RARE[name])


NARROW: dict[tuple[str, str], tuple[str, Formula]] = {
    ("f16", "f32"): ("i32", narrow.f16_to_f32),
    ("bf16", "f32"): ("i32", narrow.bf16_to_f32),
    ("f32", "f16"): ("f32", narrow.f32_to_f16),
    ("f32", "bf16"): ("f32", narrow.f32_to_bf16),
    ("f64", "odd"): ("f64", narrow.f64_to_f32_odd),
}


@cache
def conversion(source: str, target: str) -> Body:
    """The conversion between f32 and the bits of a float of 16 bits, as an i32; `odd` is an f32 on the way there from f64."""
    type_, function = NARROW[source, target]
    return trace([type_], function)
