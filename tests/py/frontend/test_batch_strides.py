"""A step takes batches of any strides; one that computes with strides takes dense ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from beside_torch import assert_trains

from aicf_mlir import compile_step, compile_train_step
from aicf_mlir.errors import BindError, TraceError

Function = Callable[[torch.Tensor], torch.Tensor]

READING: dict[str, Function] = {
    "stride": lambda x: x * x.stride(0),
    "strides of a view": lambda x: x.t() * x.t().stride()[1],
    "strides of a result": lambda x: (x * 2) * (x * 2).stride(1),
    "as_strided": lambda x: x.clone().as_strided((2, 2), (4, 1)),
    "branch": lambda x: x.exp() if x.stride(-1) == 1 else x,
}

HARMLESS: dict[str, Function] = {
    "contiguous before": lambda x: x * x.contiguous().stride(0),
    "is_contiguous": lambda x: x * 2 if x.is_contiguous() else x.contiguous() * 2,
    "not used": lambda x: x * x.dim() if x.stride() else x,
    "of memory of its own": lambda x: (
        x.clone(memory_format=torch.contiguous_format).as_strided((2, 2), (4, 1)) + (x @ x.t()).sum()
    ),
}

BATCHES: dict[str, torch.Tensor] = {
    "dense": torch.arange(20.0).view(5, 4) / 20,
    "transposed": (torch.arange(20.0).view(4, 5) / 20).t(),
    "with gaps": (torch.arange(40.0).view(10, 4) / 40)[::2],
    "repeated": torch.arange(4.0).expand(5, 4),
}


def loss_of(function: Function) -> Callable[[torch.nn.Module, dict[str, torch.Tensor]], torch.Tensor]:
    """A loss with the function of the batch entry x."""

    def loss(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return (model(batch["x"]).sum() * function(batch["x"]).mean()).square()

    return loss


@pytest.mark.parametrize("name", READING)
def test_dense_batches_train_and_others_are_refused(name: str) -> None:
    torch.manual_seed(0)
    loss = loss_of(READING[name])
    assert_trains(torch.nn.Linear(4, 3), loss, {"x": BATCHES["dense"]})
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = compile_train_step(
        model, optimizer, loss_fn=loss, example={"x": BATCHES["transposed"]}, device="cpu"
    )
    before = model.weight.detach().clone()
    for batch in ("transposed", "with gaps", "repeated"):
        message = r"batch entry 'x' has the strides .* the step computes with strides, in \w+ at .*test_batch_strides.py:\d+"
        with pytest.raises(BindError, match=message):
            step.train_step({"x": BATCHES[batch]})
    assert torch.equal(model.weight.detach(), before)
    step.train_step({"x": BATCHES["dense"]})


def test_the_place_of_a_batch_in_its_memory_is_refused() -> None:
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = loss_of(lambda x: x * (1 + int(x.storage_offset())))
    with pytest.raises(TraceError, match=r"the step computes with the storage_offset\(\) of its batch"):
        compile_train_step(model, optimizer, loss_fn=loss, example={"x": BATCHES["dense"]}, device="cpu")


def test_a_loop_body_that_computes_with_strides_takes_dense_batches() -> None:
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def body(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(READING["stride"])(model, batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile_step(body, example={"x": BATCHES["dense"]})
    step({"x": BATCHES["dense"]})
    with pytest.raises(BindError, match="the step computes with strides, in mul at"):
        step({"x": BATCHES["transposed"]})


@pytest.mark.parametrize("batch", [name for name in BATCHES if name != "repeated"])
@pytest.mark.parametrize("name", HARMLESS)
def test_strides_that_change_nothing_are_read(name: str, batch: str) -> None:
    torch.manual_seed(0)
    assert_trains(torch.nn.Linear(4, 3), loss_of(HARMLESS[name]), {"x": BATCHES[batch]})
