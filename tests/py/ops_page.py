"""Writes docs/ops.md from the tables of the compiler and from what trains: `python tests/py/ops_page.py`."""

from __future__ import annotations

import copy
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_layers import LAYERS, LOSSES, OPTIMIZERS, Wrapped, input_of, optimizer_of, target_of

from aicf_mlir import _C
from aicf_mlir.compile import compile_train_step
from aicf_mlir.errors import TraceError
from aicf_mlir.frontend.aten_table import TABLE
from aicf_mlir.frontend.types import ELEMENT_TYPES

PAGE = Path(__file__).parents[2] / "docs" / "ops.md"
TEXT = """\
# What can be compiled

Written by `python tests/py/ops_page.py` from the tables of the compiler and from steps that ran beside torch;
`tests/py/test_ops_page.py` holds this page to them. A step is compiled whole or refused whole: an op that is
missing is named with its shapes and the line, and nothing of the model has changed.

## Layers of torch.nn

Train as in torch: {layers}.

Not yet: {missing_layers}.

A module of your own is what its `forward` calls: see the ops below.

## Losses

Train as in torch: {losses}, and any function of (model, batch) that returns a 0-d float tensor made of the ops below.

Not yet: {missing_losses}.

## Optimizers

Train as in torch: {optimizers} of torch.optim and of `aicf_mlir.optim`, with param groups, weight decay,
`maximize`, `amsgrad`, `momentum`, `dampening` and `nesterov`. Not with `differentiable=True`, step hooks, or a
subclass that replaces `step`.

Not yet: {missing_optimizers}.

## Ops

{ops}.

An op outside of this list is taken apart by torch's own rule for it, and tried again.

## Element types

{dtypes}. Losses and parameters are of floating-point numbers; integers and booleans are indices, counters and masks, and
are computed exactly in their own types. Numbers in the code of a model are exact up to 2^53.

## Limits

- Shapes are fixed when the step is compiled; several batch shapes are several plans (`example=[…]`, `B=(…)`).
- A tensor that a kernel sees has at most {rank} dimensions, and no tensor is empty.
- Every tensor is a dense block of memory on one device: none is sparse, nested, quantized, fake, or of a
  subclass with arithmetic of its own.
- Nothing in the step depends on the value of a tensor in Python: no `.item()`, no `if`, no shape made from values.
- Random numbers are those of a generator of our own (`seed=`, `step.seed(n)`): of torch's laws, but not the same numbers.
- A buffer may be updated by what is detached from the gradient (`self.mean.mul_(0.9).add_(0.1 * x.mean(0).detach())`,
  `self.count += 1`, `self.last = x.detach()`).
- A gradient is cut by `detach` and `no_grad`, and not taken inside the step (`autograd.grad`, `torch.func`).
- No op takes functions (`torch.cond`, `while_loop`, `scan`), and no autograd function has a backward of its own.
"""


def trains(
    model: nn.Module, loss: Callable[..., torch.Tensor], batch: dict[str, torch.Tensor], optimizer: str
) -> bool:
    """Whether a step compiles; it must then do what torch does."""
    twin = copy.deepcopy(model)
    ours, theirs = optimizer_of(optimizer, model), optimizer_of(optimizer, twin)
    try:
        step = compile_train_step(model, ours, loss_fn=loss, example=batch, device="cpu")
    except TraceError:
        return False
    got = step.train_step(batch)
    expected = loss(twin, batch)
    if not torch.equal(expected, loss(twin, batch)):
        return bool(got.isfinite())  # it is random
    torch.autograd.backward(expected)
    theirs.step()
    torch.testing.assert_close(got, expected)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q)
    return True


def layer_trains(name: str) -> bool:
    """Behind a Linear, with the mean of squares as loss."""
    make, shape = LAYERS[name]
    return trains(
        Wrapped(make(), shape), lambda m, b: m(b["x"]).square().mean(), {"x": input_of(shape)}, "SGD"
    )


def loss_trains(name: str) -> bool:
    """Of probabilities in (0, 1)."""
    loss, x = LOSSES[name](), input_of((3, 4))
    model = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid())
    batch = {"x": x, "t": target_of(loss, x.shape)}
    return trains(model, lambda m, b: loss(m(b["x"]), b["t"]), batch, "SGD")


def optimizer_trains(name: str) -> bool:
    """Of the weight of a Linear."""
    return trains(nn.Linear(4, 4), lambda m, b: m(b["x"]).square().mean(), {"x": input_of((3, 4))}, name)


def split(names: Iterable[str], works: Callable[[str], bool]) -> tuple[str, str]:
    """The names that work and those that do not, each as a list in prose: a name a line, so that lines stay."""
    sides: dict[bool, list[str]] = {True: [], False: []}
    for name in names:
        sides[works(name)].append(f"`{name}`" if name.isidentifier() else name)
    return ",\n".join(sides[True]), ",\n".join(sides[False])


def render() -> str:
    """The page."""
    values: dict[str, Any] = {"rank": _C.MAX_RANK}
    values["layers"], values["missing_layers"] = split(LAYERS, layer_trains)
    values["losses"], values["missing_losses"] = split(LOSSES, loss_trains)
    values["optimizers"], values["missing_optimizers"] = split(OPTIMIZERS, optimizer_trains)
    ops = sorted({name.removeprefix("aten.").partition(".")[0] for name in TABLE})
    values["ops"] = ",\n".join(f"`{name}`" for name in ops if not name.startswith("_"))
    values["dtypes"] = ", ".join(f"`{str(dtype).removeprefix('torch.')}`" for dtype in ELEMENT_TYPES)
    return "\n\n".join(map(filled, TEXT.split("\n\n"))).format(**values).rstrip() + "\n"


def filled(paragraph: str) -> str:
    """Prose in lines of the usual width; headings and lists as they are."""
    if paragraph.startswith(("#", "- ")):
        return paragraph
    return textwrap.fill(" ".join(paragraph.split()), 140, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(render())
