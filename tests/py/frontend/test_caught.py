"""Errors that a trace alone raises, under handlers of the user's: never another branch than torch's."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from beside_torch import losses_of_torch
from torch import Tensor, nn

from aicf_mlir import GuardError, TraceError, compile_step, compile_train_step
from aicf_mlir.frontend.source import OURS

Batch = dict[str, Tensor]
BATCH = {"x": torch.linspace(-1, 2, 12).reshape(4, 3), "t": torch.linspace(1, 0, 8).reshape(4, 2)}


@torch.library.custom_op("aicf_caught::halved", mutates_args=())
def halved(x: Tensor) -> Tensor:
    """A body that reads values."""
    return x * float(x.sum() > 0) / 2


LIBRARY = torch.library.Library("aicf_caught", "FRAGMENT")
LIBRARY.define("thrice(Tensor x) -> Tensor")
LIBRARY.impl("thrice", lambda x: x * 3, "CPU")

READS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "a branch": lambda y, x: 2.0 if y.sum() < 1e9 else 1.0,
    "a maximum": lambda y, x: float(y.detach().abs().max()),
    "numbers": lambda y, x: sum(x.flatten().tolist()),
    "numpy": lambda y, x: float(x.numpy().sum()),
    "an array": lambda y, x: float(np.asarray(x).sum()),
    "memory": lambda y, x: float(torch.from_dlpack(x).sum()),
    "an address": lambda y, x: 1.0 + (x.data_ptr() != 0),
    "a text": lambda y, x: float(len(repr(x))),
    "a count": lambda y, x: float(len(torch.unique(x))),
    "a custom op": lambda y, x: 1 + halved(x).sum(),
    "an op without a fake": lambda y, x: 1 + torch.ops.aicf_caught.thrice(x).sum(),
}
"""What torch computes, and a trace cannot."""


def caught(read: Callable[[Tensor, Tensor], Any], y: Tensor, x: Tensor) -> Any:
    try:
        return read(y, x)
    except Exception:  # noqa: BLE001
        return 5.0


def suppressed(read: Callable[[Tensor, Tensor], Any], y: Tensor, x: Tensor) -> Any:
    found = 5.0
    with contextlib.suppress(Exception):
        found = read(y, x)
    return found


def left(read: Callable[[Tensor, Tensor], Any], y: Tensor, x: Tensor) -> Any:
    found = 5.0
    try:
        found = read(y, x)
    finally:
        return found  # noqa: B012  # pyright: ignore[reportReturnInFinally]


def raised_again(read: Callable[[Tensor, Tensor], Any], y: Tensor, x: Tensor) -> Any:
    try:
        try:
            return read(y, x)
        except Exception as error:
            raise ValueError("another") from error
    except ValueError:
        return 5.0


HANDLERS = [caught, suppressed, left, raised_again]


def trained(loss: Callable[[nn.Module, Batch], Tensor], is_body: bool) -> None:
    """Compile the loss and run one step; compare it with torch's."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    expected = loss(model, BATCH).detach()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def body(batch: Batch) -> Tensor:
        optimizer.zero_grad()
        found = loss(model, batch)
        found.backward()
        optimizer.step()
        return found

    if is_body:
        found = compile_step(body, example=BATCH, device="cpu")(BATCH)
    else:
        step = compile_train_step(model, optimizer, loss_fn=loss, example=BATCH, device="cpu")
        found = step.train_step(BATCH)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("is_body", [False, True], ids=["step", "body"])
@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.__name__)
def test_a_handler_does_not_decide_what_is_compiled(
    handler: Callable[..., Any], name: str, is_body: bool
) -> None:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        y = model(batch["x"])
        return F.mse_loss(y * handler(READS[name], y, batch["x"]), batch["t"])

    with contextlib.suppress(TraceError) if is_body else pytest.raises(TraceError):
        trained(loss, is_body)  # a body has some numbers as torch has them


RAISES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "a length": lambda y, x: len(x.sum()),
    "an index": lambda y, x: x[9],
    "an iterator": lambda y, x: list(x.sum()),
    "an attribute": lambda y, x: getattr(x, "missing"),  # noqa: B009
    "python": lambda y, x: {}["missing"],
}


@pytest.mark.parametrize("is_body", [False, True], ids=["step", "body"])
@pytest.mark.parametrize("name", RAISES)
def test_what_torch_raises_too_is_caught_as_in_torch(name: str, is_body: bool) -> None:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        y = model(batch["x"])
        return F.mse_loss(y * caught(RAISES[name], y, batch["x"]), batch["t"])

    trained(loss, is_body)


def test_another_error_names_the_first() -> None:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        y = model(batch["x"])
        try:
            y = y * float(y.sum())
        except Exception as error:
            raise RuntimeError("no luck") from error
        return F.mse_loss(y, batch["t"])

    with pytest.raises(TraceError, match="reads the value of a tensor"):
        trained(loss, is_body=False)


SOURCE = """
def loss(model, batch):
    try:
        factor = float(model(batch["x"]).detach().abs().max())
    except Exception:
        factor = FACTOR
    return model(batch["x"]).mul(factor).square().mean()
"""


def test_a_folder_with_a_longer_name_is_not_ours() -> None:
    """What it catches counts, and what it reads is guarded."""
    names: dict[str, Any] = {"FACTOR": 5.0}
    exec(compile(SOURCE, f"{OURS.removesuffix(os.sep)}_more/loss.py", "exec"), names)
    with pytest.raises(TraceError, match="reads the value of a tensor"):
        trained(names["loss"], is_body=False)
    names["float"] = lambda x: 3.0
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = compile_train_step(model, optimizer, loss_fn=names["loss"], example=BATCH, device="cpu")
    names["float"] = lambda x: 7.0
    with pytest.raises(GuardError):
        step.train_step(BATCH)


class Doubled(torch.optim.Optimizer):
    """Takes twice the step if `read` says so."""

    def __init__(self, params: Any, read: Callable[[Tensor], Any]):
        super().__init__(params, {"lr": 0.1})
        self.read = read

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for param in group["params"]:
                factor = 1.0
                with contextlib.suppress(Exception):
                    factor = float(self.read(param.grad))
                param.add_(param.grad, alpha=-factor * group["lr"])


@pytest.mark.parametrize(
    "read",
    [
        lambda grad: 2.0 if grad.norm() < 1e9 else 1.0,
        lambda grad: grad.norm(),
        lambda grad: grad.numpy().sum(),
        lambda grad: len(grad.nonzero()),
    ],
    ids=["tensor", "float", "numpy", "count"],
)
def test_an_optimizers_handler_does_not_decide_either(read: Callable[[Tensor], Any]) -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(TraceError):
        compile_train_step(
            model, Doubled(model.parameters(), read), device="cpu", example=BATCH, loss_fn=mean
        )


@pytest.mark.parametrize("limit", [1e-9, 0.9, 1e9])
def test_an_optimizers_decision_by_a_number_is_torchs_under_a_handler(limit: float) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    twin = copy.deepcopy(model)
    ours, eager = (
        Doubled(each.parameters(), lambda grad: 2.0 if grad.norm().item() < limit else 1.0)
        for each in (model, twin)
    )
    step = compile_train_step(model, ours, device="cpu", example=BATCH, loss_fn=mean)
    for _ in range(5):
        step.train_step(BATCH)
    losses_of_torch(twin, eager, mean, BATCH, 5)
    for own, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(own, theirs)


def mean(model: nn.Module, batch: Batch) -> Tensor:
    return F.mse_loss(model(batch["x"]), batch["t"])
