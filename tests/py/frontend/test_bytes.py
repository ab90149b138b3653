"""Batches of bytes (uint8), as images are: converted in the step they train as in torch, and nothing computes in bytes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from beside_torch import compiled
from trained_ops import Function, OfOp, assert_op_trains, weighed

from aicf_mlir import BindError, TraceError, compile_train_step


def batch(seed: int = 3) -> dict[str, torch.Tensor]:
    """Every element of an image is a byte, the largest too."""
    drawn = torch.randint(256, (5, 8), generator=torch.Generator().manual_seed(seed))
    drawn[0, :2] = torch.tensor([0, 255])
    return {"image": drawn.to(torch.uint8)}


def by_type(x: Any, b: Any) -> Any:
    """What is done with bytes only."""
    image = b["image"]
    return x * (image.float() / 255 if image.dtype is torch.uint8 else image.float())


USES: dict[str, Function] = {
    "float": lambda x, b: x * (b["image"].to(x.dtype) / 255),
    "by its type": by_type,
    "moved": lambda x, b: x * b["image"].reshape(8, 5).t().flip(1)[:, 1:].to(x.dtype).mean(1, keepdim=True) / 255,
    "quotient": lambda x, b: x * (b["image"] / 255),
    "product": lambda x, b: x * b["image"] / 255,
    "number": lambda x, b: x[b["image"][0].long() % 5],
    "compared": lambda x, b: x.masked_fill(b["image"] > 100, 0.0) + (b["image"] < 0.5),
    "chosen": lambda x, b: torch.where(b["image"].bool(), x, 0.25),
    "made": lambda x, b: x * ((x.sigmoid() * 255).round().byte() / 255) + b["image"].float() / 255,
    "made of whole numbers": lambda x, b: x * (b["image"].long() * 3 - 200).to(torch.uint8).to(x.dtype) / 255,
    "wrapped": lambda x, b: x * ((b["image"] + 100) * b["image"] - 7 ^ 1 | b["image"] & 3).to(x.dtype) / 255,
    "filled": lambda x, b: x * b["image"].masked_fill(b["image"] > 9, 7).to(x.dtype) / 255,
    "parts": lambda x, b: torch.cat([part.to(x.dtype) for part in b["image"].chunk(2, 1)], 1) * x / 255,
}  # fmt: skip


@pytest.mark.parametrize("name", USES)
def test_bytes_train_as_torch(name: str) -> None:
    assert_op_trains(USES[name], batch(), torch.float32)


REFUSED: dict[str, tuple[Function, str]] = {
    "negative": (lambda x, b: x * (-b["image"]).to(x.dtype), "arithmetic on bytes"),
    "all": (lambda x, b: x * b["image"].sum(), "arithmetic on bytes"),
    "another number": (lambda x, b: x * (b["image"] < 256).to(x.dtype), "bytes .uint8. compared with 256"),
    "index": (lambda x, b: x.index_put((b["image"],), torch.tensor(0.0)), "arithmetic on bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_computes_in_bytes_is_refused(name: str) -> None:
    function, reason = REFUSED[name]
    with pytest.raises(TraceError, match=reason):
        compiled(OfOp(function, torch.float32), weighed, batch())


def test_the_batch_must_be_of_bytes_and_check_sees_bytes() -> None:
    torch.manual_seed(1)
    model = OfOp(by_type, torch.float32)
    again = copy.deepcopy(model)
    step = compiled(model, weighed, batch())
    step.train_step(batch())
    with pytest.raises(BindError, match=r"input 'image': expected torch\.uint8, got torch\.int32"):
        step.train_step({"image": batch()["image"].int()})
    assert step.check(batch(4), steps=2)
    step.capture(batch())
    step.replay(inputs=batch(4), sync=True)
    other = compiled(again, weighed, batch())
    for seed in (3, 4):
        other.train_step(batch(seed))
    assert torch.equal(model.weight, again.weight)


def test_the_memory_of_the_step_is_a_batch() -> None:
    torch.manual_seed(1)
    model = OfOp(by_type, torch.float32)
    step = compiled(model, weighed, batch())
    first = step.train_step(batch()).clone()
    step.inputs["image"].copy_(batch(4)["image"])
    assert not torch.equal(step.train_step(step.inputs), first)


def test_micro_batches_of_bytes() -> None:
    torch.manual_seed(1)
    model = OfOp(by_type, torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step = compile_train_step(model, optimizer, loss_fn=weighed, example=batch(), device="cpu", accumulate=2)
    step.train_step([batch(), batch(4)])
    assert step.check([batch(5), batch(6)])
