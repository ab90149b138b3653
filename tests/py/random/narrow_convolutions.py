"""Random convolutions of 16-bit floats, several in one step, beside torch's in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from random_layers import Draw
from torch import Tensor, nn
from torch.nn import functional

CONVOLUTIONS: tuple[Any, ...] = (None, functional.conv1d, functional.conv2d, functional.conv3d)
TRANSPOSED: tuple[Any, ...] = (
    None,
    functional.conv_transpose1d,
    functional.conv_transpose2d,
    functional.conv_transpose3d,
)
LAST = (None, None, torch.channels_last, torch.channels_last_3d)
TERMS = 2.0**-24
"""Unit roundoff of a sum in f32."""


@dataclass(frozen=True)
class Convolution:
    """One convolution with its operands, rounded to its type; `g` is the gradient of its result."""

    rank: int
    transposed: bool
    stride: tuple[int, ...]
    padding: Any
    dilation: tuple[int, ...]
    groups: int
    more: tuple[int, ...]
    """Rows of a transposed convolution beyond those of its windows."""
    pads: tuple[int, ...]
    mode: str
    """How the image is padded before."""
    x: Tensor
    w: Tensor
    b: Tensor | None
    g: Tensor
    special: str

    def of(self, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        """The convolution of other operands."""
        if any(self.pads):
            x = functional.pad(x, self.pads, self.mode)
        if self.transposed:
            return TRANSPOSED[self.rank](
                x, w, b, self.stride, self.padding, self.more, self.groups, self.dilation
            )
        return CONVOLUTIONS[self.rank](x, w, b, self.stride, self.padding, self.dilation, self.groups)

    def exact(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Results and gradients in float64, and the same of all absolute values: what bounds a rounding."""
        return self._in_double(lambda each: each), self._in_double(torch.abs)

    def touched(self) -> dict[str, Tensor]:
        """How often an element that is no number is a term of each: paddings, which a library may multiply too, are none."""
        marks = replace(self, x=(~self.x.isfinite()).to(self.x.dtype))
        return marks._in_double(torch.abs, ones=True)

    def clean(self) -> dict[str, Tensor]:
        """The same without those elements."""
        return replace(self, x=self.x.nan_to_num(0.0, 0.0, 0.0))._in_double(lambda each: each)

    def _in_double(self, of: Any, ones: bool = False) -> dict[str, Tensor]:
        x = of(self.x.double()).requires_grad_()
        w, g = (torch.ones_like(each.double()) if ones else of(each.double()) for each in (self.w, self.g))
        w.requires_grad_()
        b = None if self.b is None else of(self.b.double()) * (not ones)
        b = None if b is None else b.requires_grad_()
        y = self.of(x, w, b)
        leaves = {"x": x, "w": w, **({} if b is None else {"b": b})}
        grads = torch.autograd.grad(y, list(leaves.values()), g)
        found = {"y": y.detach(), **dict(zip(leaves, grads, strict=True))}
        return {**found, **{name: torch.zeros_like(found[name]) for name in "xb" if ones and name in found}}

    def __repr__(self) -> str:
        kind = "transposed " if self.transposed else ""
        return (
            f"{kind}{list(self.x.shape)} by {list(self.w.shape)}, {self.x.dtype}, stride={self.stride} padding={self.padding}"
            f" dilation={self.dilation} groups={self.groups} more={self.more} pads={self.pads} {self.mode}"
            f" bias={self.b is not None} {self.special} x of strides {self.x.stride()}"
        )


def convolution(draw: Draw, generator: torch.Generator, dtype: torch.dtype) -> Convolution:
    """One that torch computes too."""
    while True:
        found = drawn(draw, generator, dtype)
        if found is not None:
            return found


def drawn(draw: Draw, generator: torch.Generator, dtype: torch.dtype) -> Convolution | None:
    """One of any kind; None where torch refuses it."""
    rank, transposed = draw.choice((1, 2, 2, 2, 3)), draw.random() < 0.3

    def each(*choices: int) -> tuple[int, ...]:
        return tuple(draw.choice(choices) for _ in range(rank))

    groups = draw.choice((1, 1, 1, 2, 3, 4))
    inputs, outputs = groups * draw.choice((1, 1, 2, 3, 8)), groups * draw.choice((1, 1, 2, 3, 8))
    size = each(1, 2, 4, 5, 7, 9) if rank < 3 else each(1, 2, 3, 4)
    kernel, stride, dilation = each(1, 1, 2, 3, 3, 4, 7), each(1, 1, 1, 2, 3), each(1, 1, 1, 2, 3)
    padding: Any = tuple(draw.randrange(0, k + 1) for k in kernel)
    more, pads, mode = (0,) * rank, (0,) * (2 * rank), "constant"
    if transposed:
        padding = tuple(draw.randrange(0, (k + 1) // 2 + 1) for k in kernel)
        more = tuple(draw.randrange(0, max(s, d)) for s, d in zip(stride, dilation, strict=True))
    elif draw.random() < 0.25:
        stride, padding = (1,) * rank, draw.choice(("same", "valid"))
    if draw.random() < 0.3:
        pads = tuple(draw.randrange(0, 4) for _ in range(2 * rank))
        mode = draw.choice(("constant", "reflect", "circular", "replicate"))
    count = draw.choice((0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6))
    shape = (outputs, inputs // groups, *kernel) if not transposed else (inputs, outputs // groups, *kernel)
    size_of = draw.choice((1.0, 1.0, 1.0, 0.01, 1e-3, 30.0 if dtype is torch.float16 else 1e3))
    x = (size_of * torch.randn(count, inputs, *size, generator=generator)).to(dtype)
    w = torch.randn(shape, generator=generator).to(dtype)
    if dtype is torch.float16 and draw.random() < 0.15:
        x = (3e4 * torch.rand(x.shape, generator=generator)).to(dtype)  # sums beyond the largest number
    b = torch.randn(outputs, generator=generator).to(dtype) if draw.random() < 0.6 else None
    special = draw.choice(("",) * 5 + ("nan", "inf", "zeros"))
    if special and x.numel():
        number = {"nan": math.nan, "inf": math.inf, "zeros": -0.0}[special]
        x = torch.where(torch.rand(x.shape, generator=generator) < 0.03, torch.tensor(number, dtype=dtype), x)
    if LAST[rank] is not None and draw.random() < 0.4:
        x = x.contiguous(memory_format=LAST[rank])
    found = Convolution(
        rank,
        transposed,
        stride,
        padding,
        dilation,
        groups,
        more,
        pads,
        mode,
        x,
        w,
        b,
        torch.empty(0),
        special,
    )
    try:
        y = found.of(x.double(), w.double(), b)
    except RuntimeError:
        return None
    if (
        y.numel() > 40000 or 0 in y.shape[1:]
    ):  # torch takes an image without a window only where there are no images
        return None
    g = (draw.choice((1.0, 1e-2)) * torch.randn(y.shape, generator=generator)).to(dtype)
    return Convolution(**{**vars(found), "g": g})


class Convolutions(nn.Module):
    """Some convolutions, their images parameters too, for the gradient."""

    def __init__(self, each: list[Convolution]):
        super().__init__()
        self.each = each
        self.x = nn.ParameterList(nn.Parameter(one.x.clone()) for one in each)
        self.w = nn.ParameterList(nn.Parameter(one.w.clone()) for one in each)
        self.b = nn.ParameterList(
            nn.Parameter(torch.zeros(1, dtype=one.x.dtype) if one.b is None else one.b.clone())
            for one in each
        )

        for number, one in enumerate(each):
            self.register_buffer(f"g{number}", one.g)

    def forward(self, number: int) -> Tensor:
        one = self.each[number]
        return one.of(self.x[number], self.w[number], None if one.b is None else self.b[number])


def loss_of(model: Convolutions, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """The sum of results times their gradients, so that these are theirs; the batch is a one."""
    results = {f"y{number}": model(number) for number in range(len(model.each))}
    parts = [(y.float() * model.get_buffer(f"g{name[1:]}").float()).sum() for name, y in results.items()]
    loss = torch.stack(parts).sum() * batch["one"].sum()
    return loss, {name: y for name, y in results.items() if y.numel()}


def bounds(one: Convolution, sizes: Mapping[str, Tensor], exact: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What roundings explain: those of a result, of what a bias is added to, and of every term of its sum in f32.

    The gradient of an image that is padded by its own elements is a sum of numbers of 16 bits.
    """
    info = torch.finfo(one.x.dtype)
    unit, least = info.eps / 2, info.smallest_normal * info.eps
    terms = {
        "y": one.w.numel() / one.w.shape[0 if not one.transposed else 1],
        "x": one.w.numel(),
        "w": one.g.numel(),
        "b": one.g.numel(),
    }
    found: dict[str, Tensor] = {}
    for name, value in sizes.items():
        times = 2 if name == "y" and one.b is not None else 1
        if name == "x" and one.mode != "constant":
            times += 1 + sum(one.pads)
        whole = value if times > 1 else exact[name].abs()
        found[name] = 1.01 * times * (unit * whole + least) + (terms[name] + 8) * TERMS * value
    return found


def faults_of(one: Convolution, ours: Mapping[str, Tensor]) -> list[str]:
    """The results that no rounding explains."""
    exact, sizes = one.exact()
    allowed, largest, found = bounds(one, sizes, exact), torch.finfo(one.x.dtype).max, list[str]()
    if one.special in ("nan", "inf"):
        clean, touched = one.clean(), one.touched()
        room = bounds(one, replace(one, x=one.x.nan_to_num(0.0, 0.0, 0.0)).exact()[1], clean)
    else:
        clean, touched, room = (
            exact,
            {name: torch.zeros_like(value) for name, value in exact.items()},
            allowed,
        )
    for name, right in exact.items():
        if name == "x" and not right.numel():
            continue  # of a parameter without elements
        value = ours[name].double()
        if value.shape != right.shape:
            found.append(f"{name}: of shape {list(value.shape)}, not {list(right.shape)}")
            continue
        free = touched[name] == 0
        meant = torch.where(free, clean[name], right)
        size = meant.abs() + torch.where(free, room[name], 0.0)
        near = free & ((value - clean[name]).abs() <= room[name])
        overflown = value.isinf() & (size >= largest) & (value.sign() == meant.sign())
        both = (
            (value == right)
            | (value.isnan() & right.isnan())
            | (~free & ~right.isfinite() & ~value.isfinite())
        )
        if name == "y" and one.b is not None:  # an infinite sum, and a bias that would bring it back
            overflown |= value.isinf() & (size + one.b.double().abs().max() >= largest)
        wrong = ~(near | overflown | both)
        if bool(wrong.any()):
            at = tuple(int(place) for place in wrong.nonzero()[0])
            found.append(
                f"{name}{list(at)}: {float(value[at])!r}, torch {float(right[at])!r}, allowed {float(room[name][at]):.3g}; "
                f"{int(wrong.sum())} of {wrong.numel()}"
            )
    return found
