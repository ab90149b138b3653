"""Samples of the pointwise ops and their gradients: one row an op, with the function of torch that it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from xdsl.ir import Operation

from aicf_mlir.dialects.nn.gradient_rows import gradients
from aicf_mlir.dialects.nn.pointwise import CLASSES, PARTIALS
from aicf_mlir.dialects.nn.rows import ROWS, Pointwise
from aicf_mlir.dialects.nn.rows.row import INTEGERS
from aicf_mlir.interpreters.numerics import Array
from samples.sample import Fill, Sample, classes, normal, positive, special, special_slowly, unit

MODERATE = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.5, 1e-30, 7.0, -20.0, 0.25)
"""Special values in whose neighbourhood sines and powers have digits."""


def moderate(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """The moderate special values in order, again and again."""
    return np.resize(np.array(MODERATE), shape)


def moderate_slowly(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Beside `moderate`, all pairs."""
    return np.resize(np.repeat(np.array(MODERATE), len(MODERATE)), shape)


def numbered(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """The special values that are numbers."""
    return np.nan_to_num(special(rng, shape), nan=0.5, posinf=math.inf, neginf=-math.inf)


def one_zero(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """The special values without -0, where torch's infinity has either sign."""
    return special(rng, shape) + 0.0


def above_one(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Between 1.1 and 3."""
    return 1.0 + positive(rng, shape)


def probability(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Between 0.05 and 0.95."""
    return rng.uniform(0.05, 0.95, shape)


def numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Whole numbers of both signs, none of them 0."""
    return rng.integers(1, 30, shape) * rng.choice([-1, 1], shape)


@dataclass(frozen=True)
class Case:
    """An op in torch, and where it is defined."""

    torch: Callable[..., Any]
    fills: Sequence[Fill] = ()
    """Of its operands; normal where there is none."""
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    specials: tuple[Fill, Fill] | None = (special, special_slowly)
    """Special values of x and y."""
    clear_at_nan: bool = True
    """Whether torch's gradient at a NaN is the same for every number of elements: on CPUs what fills a vector register is
    computed in another way than the rest. Ours is as the rest, and as on GPUs."""
    units: float = 1.0
    """As of a sample."""
    in_range: bool = True
    """Of the gradient, as of a sample."""
    saved: Callable[..., Any] | None = None
    """The gradient in torch, where it is made from the result: from its operands."""


def gelu(x: Any, approximate: str = "none") -> Any:
    """F.gelu."""
    return F.gelu(x, approximate=approximate)


def huber(x: Any, delta: float = 1.0) -> Any:
    """Of a difference."""
    return F.huber_loss(x, torch.zeros_like(x), reduction="none", delta=delta)


def smooth_l1(x: Any, beta: float = 1.0) -> Any:
    """Of a difference."""
    return F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none", beta=beta)


def hinge(x: Any) -> Any:
    """The loss of two classes whose difference is x, for the first of them, in torch, whose CPU kernel takes no 16 bits."""
    flat = x.reshape(-1).to(torch.promote_types(x.dtype, torch.float32))
    scores = torch.stack([torch.zeros_like(flat), flat], 1)
    target = torch.zeros_like(flat, dtype=torch.int64)
    loss = F.multi_margin_loss(scores, target, margin=0.0, reduction="none")
    return (loss.reshape(x.shape) * 2).to(x.dtype)


def absolute(re: Any, im: Any) -> Any:
    """The absolute value of complex numbers, whose parts have 32 bits or more."""
    wide = torch.promote_types(re.dtype, torch.float32)
    return torch.complex(re.to(wide), im.to(wide)).abs().to(re.dtype)


def share(g: Any, part: Any, y: Any) -> Any:
    """The gradient of a part of a complex number of that absolute value."""
    return g * torch.where(y == 0, 0.0, part / torch.where(y == math.inf, math.nan, y))


def deviation(x: Any) -> Any:
    """The root in torch.std, with its gradient of 0 at 0."""
    return torch.where(x == 0, x.detach(), torch.where(x == 0, 1.0, x).sqrt())


SOFT = (moderate, moderate_slowly)
aten = torch.ops.aten

CASES: Mapping[str, Sequence[Case]] = {
    "add": [Case(torch.add)],
    "sub": [Case(torch.sub)],
    "mul": [Case(torch.mul)],
    "div": [Case(torch.div)],
    "neg": [Case(torch.neg)],
    "maximum": [Case(torch.maximum)],
    "minimum": [Case(torch.minimum)],
    "clamp_min": [Case(lambda x, y: torch.clamp(x, min=y))],
    "clamp_max": [Case(lambda x, y: torch.clamp(x, max=y))],
    "clamp_between": [Case(torch.clamp)],
    "clamp": [
        Case(lambda x, min, max: torch.clamp(x, min, max), parameters={"min": -0.5, "max": 0.75}),
        Case(lambda x, min: torch.clamp(x, min), parameters={"min": 0.0}),
    ],
    "fmod": [Case(torch.fmod, (normal, positive), specials=SOFT)],
    "remainder": [Case(torch.remainder, (normal, positive), specials=SOFT)],
    "floor_divide": [Case(torch.floor_divide, (normal, positive))],
    "trunc_divide": [Case(lambda x, y: torch.div(x, y, rounding_mode="trunc"), (normal, positive))],
    "pow": [Case(torch.pow, (positive, normal), specials=SOFT)],
    "pow_scalar": [
        Case(lambda x, exponent: torch.pow(x, exponent), (positive,), {"exponent": e}, SOFT)
        for e in (2.5, 0.0, 0.5, -0.5, -1.0, -2.0, 3.0, 4.0, -3.0)
    ],
    "scalar_pow": [
        Case(
            lambda x, base: torch.pow(base, x),
            parameters={"base": base},
            specials=SOFT,
            units=10,
            saved=lambda g, y, base=base: g * (y * math.log(base)),
        )
        for base in (2.0, 0.3125)
    ],
    "xlogy": [Case(torch.xlogy, (normal, positive))],
    "xlog1py": [Case(torch.special.xlog1py, (normal, positive))],
    "logaddexp": [Case(torch.logaddexp)],
    "where": [Case(torch.where, (classes(2),))],
    "bitwise_and": [Case(torch.bitwise_and)],
    "bitwise_or": [Case(torch.bitwise_or)],
    "bitwise_xor": [Case(torch.bitwise_xor)],
    "bitwise_not": [Case(torch.bitwise_not)],
    "abs": [Case(torch.abs)],
    "sign": [Case(torch.sign)],
    "reciprocal": [Case(torch.reciprocal, saved=lambda g, y: -g * y * y)],
    "sqrt": [Case(torch.sqrt, (positive,), saved=lambda g, y: g / (2 * y))],
    "deviation": [Case(deviation, (positive,), saved=lambda g, y: torch.where(y == 0, 0.0, g / (2 * y)))],
    "rsqrt": [Case(torch.rsqrt, (positive,), saved=lambda g, y: -0.5 * g * y**3)],
    "exp": [Case(torch.exp, saved=lambda g, y: g * y)],
    "exp2": [Case(torch.exp2, saved=lambda g, y: g * y * math.log(2))],
    "expm1": [Case(torch.expm1, saved=lambda g, y: g * (y + 1))],
    "log": [Case(torch.log, (positive,))],
    "log2": [Case(torch.log2, (positive,))],
    "log10": [Case(torch.log10, (positive,))],
    "log1p": [Case(torch.log1p, (positive,))],
    "sin": [Case(torch.sin, specials=SOFT)],
    "cos": [Case(torch.cos, specials=SOFT)],
    "tan": [Case(torch.tan, (unit,), specials=SOFT, saved=lambda g, y: g * (y * y + 1))],
    "asin": [Case(torch.asin, (unit,))],
    "acos": [Case(torch.acos, (unit,))],
    "atan": [Case(torch.atan)],
    "atan2": [Case(torch.atan2, specials=SOFT)],
    "magnitude": [Case(absolute, saved=share)],
    "sinh": [Case(torch.sinh)],
    "cosh": [Case(torch.cosh)],
    "asinh": [Case(torch.asinh, specials=SOFT)],
    "acosh": [Case(torch.acosh, (above_one,), specials=SOFT)],
    "atanh": [Case(torch.atanh, (unit,))],
    "erf": [Case(torch.erf)],
    "erfc": [Case(torch.erfc, units=4.0)],
    "floor": [Case(torch.floor)],
    "ceil": [Case(torch.ceil)],
    "round": [Case(torch.round)],
    "trunc": [Case(torch.trunc)],
    "copysign": [Case(torch.copysign)],
    "zero_nan": [Case(lambda x: torch.nansum(x[..., None], -1))],
    "entr": [Case(torch.special.entr, (positive,))],
    "sinc": [
        Case(
            torch.sinc,
            (normal,),
            specials=SOFT,
            units=100,
            saved=lambda g, x, y: torch.where(x == 0, 0.0, g * ((torch.cos(x * math.pi) - y) / x)),
        )
    ],
    "relu": [Case(torch.relu, saved=lambda g, y: aten.threshold_backward(g, y, 0))],
    "hinge": [Case(hinge)],
    "gelu": [Case(gelu, units=20), Case(gelu, parameters={"approximate": "tanh"}, units=20, in_range=False)],
    "silu": [Case(F.silu)],
    "tanh": [Case(torch.tanh, saved=aten.tanh_backward)],
    "sigmoid": [Case(torch.sigmoid, saved=aten.sigmoid_backward)],
    "log_sigmoid": [Case(F.logsigmoid)],
    "softplus": [Case(F.softplus), Case(F.softplus, parameters={"beta": 2.0, "threshold": 1.0})],
    "mish": [Case(F.mish)],
    "hardsigmoid": [
        Case(
            lambda x: F.relu6(x + 3) / 6, saved=lambda g, x: torch.where((x > -3) & (x < 3), g / 6, 0.0)
        )  # torch's own rounds 1/6 to float32
    ],
    "hardswish": [Case(F.hardswish, clear_at_nan=False)],
    "hardtanh": [
        Case(F.hardtanh, clear_at_nan=False),
        Case(F.hardtanh, clear_at_nan=False, parameters={"min_val": 0.0, "max_val": 6.0}),
    ],
    "leaky_relu": [Case(F.leaky_relu), Case(F.leaky_relu, parameters={"negative_slope": 0.2})],
    "prelu": [Case(aten._prelu_kernel)],
    "elu": [
        Case(aten.elu, clear_at_nan=False),
        Case(aten.elu, clear_at_nan=False, parameters={"alpha": 1.5, "scale": 1.2, "input_scale": 0.5}),
    ],
    "celu": [
        Case(F.celu, clear_at_nan=False),
        Case(F.celu, clear_at_nan=False, parameters={"alpha": 1.5}),
    ],
    "hardshrink": [Case(F.hardshrink, clear_at_nan=False)],
    "softshrink": [Case(F.softshrink, clear_at_nan=False, parameters={"lambd": 0.25})],
    "threshold": [Case(F.threshold, parameters={"threshold": 0.1, "value": -2.0})],
    "logit": [
        Case(torch.logit, (probability,), specials=(one_zero, one_zero)),
        Case(torch.logit, (probability,), parameters={"eps": 0.25}, clear_at_nan=False),
    ],
    "binary_cross_entropy": [
        Case(
            lambda x, t: F.binary_cross_entropy(x, t.expand(x.shape), reduction="none"),
            (probability, probability),
            specials=None,
        )
    ],
    "huber": [Case(huber), Case(huber, parameters={"delta": 0.5})],
    "smooth_l1": [Case(smooth_l1), Case(smooth_l1, parameters={"beta": 0.5})],
    "eq": [Case(torch.eq)],
    "ne": [Case(torch.ne)],
    "lt": [Case(torch.lt)],
    "le": [Case(torch.le)],
    "gt": [Case(torch.gt)],
    "ge": [Case(torch.ge)],
    "isnan": [Case(torch.isnan)],
    "isinf": [Case(torch.isinf)],
    "isfinite": [Case(torch.isfinite)],
}
"""By the name of the row."""

BROADCAST: Sequence[Sequence[str]] = (("7x5",), ("7x5", "5"), ("7x1", "7x5", "5"))
"""Shapes of one, two and three operands."""


def pointwise() -> list[Sample]:
    """Each op in each of its element types, at special values, and each of its gradients."""
    samples: list[Sample] = []
    for name, cases in CASES.items():
        row = ROWS[name]
        element = "f32" if "f32" in row.takes else "i64"
        for number, case in enumerate(cases):
            label = f"{number or ''}"
            samples.append(forward(row, case, element, f"{element}{label}", BROADCAST[len(row.operands) - 1]))
            if "f32" in row.takes and case.specials is not None:
                samples.append(at_special_values(row, case, f"special{label}"))
            samples += backward(row, case, label)
        samples += [
            forward(row, whole(cases[0]), other, other, BROADCAST[len(row.operands) - 1])
            for other in sorted((INTEGERS | {"i1"}) & row.takes)
            if name not in ("pow_scalar", "clamp") and other != element
        ]
    return samples


def whole(case: Case) -> Case:
    """Of integers, which are not 0 where they divide."""
    masks = [fill for fill in case.fills if fill not in (normal, positive)]
    return Case(case.torch, [*masks, numbers, numbers])


def types(row: Pointwise, element: str, shapes: Sequence[str]) -> tuple[str, ...]:
    """Operand types."""
    elements = ["i1" if name in row.masks else element for name in row.operands]
    return tuple(f"{shape}x{each}" for shape, each in zip(shapes, elements, strict=True))


def forward(row: Pointwise, case: Case, element: str, name: str, shapes: Sequence[str]) -> Sample:
    """The op on ordinary values."""

    def build(*operands: Any) -> Operation:
        return CLASSES[row.name](*operands, **case.parameters)

    def reference(*operands: Any) -> Any:
        return case.torch(*operands, **case.parameters)

    fills = dict(enumerate(case.fills[: len(row.operands)]))
    return Sample(
        name, types(row, element, shapes), build, reference, fills, row.differentiable, units=case.units
    )


def at_special_values(row: Pointwise, case: Case, name: str) -> Sample:
    """All special values, of two operands all pairs."""
    assert case.specials is not None
    count = 13 if case.specials[0] is special else 11
    size = str(count ** (2 if len(row.operands) > 1 else 1))
    sample = forward(row, case, "f32", name, [size] * len(row.operands))
    kinds = [classes(2), *case.specials] if row.masks else list(case.specials)
    fills = dict(enumerate(kinds[: len(row.operands)]))
    return Sample(name, sample.operands, sample.build, sample.torch, fills, smooth=False, units=case.units)


def backward(row: Pointwise, case: Case, label: str) -> list[Sample]:
    """Each gradient that is an op, on ordinary values and at special ones."""
    if not row.differentiable or row.name in PARTIALS:
        return []
    samples: list[Sample] = []
    for operand, gradient in enumerate(gradients(row)):
        if isinstance(gradient, Pointwise):
            samples.append(of_gradient(row, case, operand, gradient, f"ordinary{label}", False))
            if case.specials is not None and len(row.operands) == 1:
                samples.append(of_gradient(row, case, operand, gradient, f"special{label}", True))
    return samples


def of_gradient(
    row: Pointwise, case: Case, operand: int, gradient: Pointwise, name: str, at_special: bool
) -> Sample:
    """One gradient, beside torch's autograd or what the case says of it."""

    def build(*operands: Any) -> Operation:
        return CLASSES[gradient.name](*operands, **case.parameters)

    def reference(*operands: Any) -> Any:
        if case.saved is not None:
            return case.saved(*operands)
        given = dict(zip(gradient.operands, operands, strict=True))
        zero = torch.zeros_like(given["dy"])
        inputs = [given.get(each, zero.bool() if each in row.masks else zero) for each in row.operands]
        inputs[operand] = inputs[operand].clone().requires_grad_()
        result = case.torch(*inputs, **case.parameters)
        return torch.autograd.grad(result, inputs[operand], given["dy"])[0]

    fills: dict[int, Fill] = {}
    for position, each in enumerate(gradient.operands):
        if each in row.operands and row.operands.index(each) < len(case.fills):
            fills[position] = case.fills[row.operands.index(each)]
        elif each in ("y", "result"):
            fills[position] = unit
        if at_special and each != "dy" and case.specials is not None:
            fills[position] = case.specials[0] if case.clear_at_nan else numbered
    shape = str(13 if at_special else "7x5")
    operands = types(gradient, "f32", [shape] * len(gradient.operands))
    in_range = case.in_range or not at_special
    return Sample(name, operands, build, reference, fills, False, in_range, case.units)
