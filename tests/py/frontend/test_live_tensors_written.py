"""Steps that write to tensors of the user's that are no part of model and state: refused, with the values as they were."""
# pyright: reportIncompatibleMethodOverride=false, reportUnknownMemberType=false

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from models import mse
from torch import Tensor, nn
from written_optimizers import Written
from written_pair import Pair, batches

from aicf_mlir import compile_eval_step, compile_train_step
from aicf_mlir.errors import TraceError
from aicf_mlir.frontend.effects import WritesUndone

ROWS, WIDTH = 3, 4
Batch = dict[str, Tensor]

WRITES: dict[str, Callable[[Tensor], Any]] = {
    "counted": lambda kept: kept.add_(1),
    "a view": lambda kept: kept.view(-1)[:1].mul_(3),
    "views that overlap": lambda kept: (kept.view(-1).mul_(2), kept.view(-1)[:1].add_(1), kept.add_(1)),
    "out=": lambda kept: torch.add(kept, 1, out=kept),
    "an entry": lambda kept: kept.__setitem__(..., 7.0),
    "without gradients": lambda kept: kept.data.mul_(3),
}


@pytest.mark.parametrize("shape", [(), (ROWS, WIDTH)], ids=str)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_refused_step_has_changed_no_tensor(write: Callable[[Tensor], Any], shape: tuple[int, ...]) -> None:
    kept = torch.rand(shape)
    before = kept.clone()

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        write(kept)
        return model(batch["x"]).square().mean()

    model = nn.Linear(WIDTH, WIDTH)
    batch = {"x": torch.randn(ROWS, WIDTH)}
    with pytest.raises(TraceError):
        compile_train_step(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn=loss, example=batch)
    assert torch.equal(kept, before)
    with pytest.raises(TraceError):
        compile_eval_step(model, loss_fn=loss, example=batch)
    assert torch.equal(kept, before)


def test_an_array_that_a_step_scales_for_itself_stays() -> None:
    array = np.ones((WIDTH, WIDTH), dtype=np.float32)

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return (model(batch["x"]) @ torch.from_numpy(array).mul_(3)).square().mean()

    model = nn.Linear(WIDTH, WIDTH)
    batch = {"x": torch.randn(ROWS, WIDTH)}
    step = compile_train_step(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn=loss, example=batch)
    assert (array == 1).all()
    expected = (model(batch["x"]) @ torch.full((WIDTH, WIDTH), 3.0)).square().mean()
    torch.testing.assert_close(step.train_step(batch), expected.detach())
    assert (array == 1).all()


def test_writes_are_undone_the_last_one_first() -> None:
    whole = torch.arange(6.0)
    before = whole.clone()
    with pytest.raises(KeyError), WritesUndone() as undone, undone.seen():
        whole[1:4].mul_(5)
        whole.add_(1)
        whole[2:].zero_()
        assert not torch.equal(whole, before)
        raise KeyError
    assert torch.equal(whole, before)


def own(body: Callable[[Written, Tensor, Tensor, Any], None]) -> type[Written]:
    class Own(Written):
        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for p, grad, state, _ in self.entries():
                body(self, p, grad, state)

    return Own


def scaled(self: Written, p: Tensor, grad: Tensor, state: Any) -> None:
    p.sub_(grad * torch.tensor(0.01))


def corrected(self: Written, p: Tensor, grad: Tensor, state: Any) -> None:
    step = state["step"] = state.get("step", torch.tensor(0.0)) + 1
    kept = state["kept"] = 0.9 * state.get("kept", torch.zeros_like(p)) + 0.1 * grad
    p.sub_(0.01 * kept / (1 - torch.tensor(0.9) ** step))


def filled(self: Written, p: Tensor, grad: Tensor, state: Any) -> None:
    p.sub_(grad.sign() * torch.tensor([0.01], device=p.device).add_(torch.tensor(1e-3)))


@pytest.mark.parametrize("body", [scaled, corrected, filled], ids=lambda body: body.__name__)
def test_an_optimizer_makes_tensors_of_numbers(body: Any, device: str) -> None:
    pair = Pair(lambda params: own(body)(params), device, double=True)
    given = batches(device, 6, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=given[0], device=device)
    for batch in given:
        step.train_step(batch)
        pair.in_torch(batch)
        pair.assert_equal(1e-7)  # torch.tensor(0.01) is of f32


@pytest.mark.parametrize(
    "form", [lambda lr: lr, lambda lr: [lr], lambda lr: 2 * lr - 0.01], ids=["alone", "list", "sum"]
)
def test_a_tensor_made_of_the_rate_follows_it(form: Callable[[Any], Any]) -> None:
    class Own(Written):
        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for p, grad, _, group in self.entries():
                p.sub_(grad * torch.tensor(form(group["lr"])))

    pair = Pair(lambda params: Own(params, lr=0.1), "cpu", double=True)
    given = batches("cpu", 4, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=given[0], device="cpu")
    for number, batch in enumerate(given):
        for optimizer in pair.optimizers:
            optimizer.param_groups[0]["lr"] = 0.1 / (number + 1)
        step.train_step(batch)
        pair.in_torch(batch)
        pair.assert_equal(1e-7)


def test_an_optimizer_that_makes_several_numbers_is_refused() -> None:
    def several(self: Written, p: Tensor, grad: Tensor, state: Any) -> None:
        p.sub_(grad * torch.tensor([0.1, 0.2])[0])

    pair = Pair(lambda params: own(several)(params), "cpu")
    with pytest.raises(TraceError, match=r"Own.step makes a tensor of several numbers anew each time"):
        compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batches("cpu", 1)[0], device="cpu")


USES: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "reads": lambda kept, p, grad: p.sub_(grad * kept),
    "writes": lambda kept, p, grad: (kept.add_(1), p.sub_(grad)),
    "both": lambda kept, p, grad: p.sub_(grad * kept.mul_(0.5)),
}


@pytest.mark.parametrize("shape", [(), (1,)], ids=str)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_an_optimizer_with_a_tensor_of_its_own_is_refused(use: Any, shape: tuple[int, ...]) -> None:
    kept = torch.ones(shape)

    def body(self: Written, p: Tensor, grad: Tensor, state: Any) -> None:
        use(kept, p, grad)

    pair = Pair(lambda params: own(body)(params), "cpu")
    with pytest.raises(TraceError, match=re.escape("Own.step uses a tensor that belongs to no parameter")):
        compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batches("cpu", 1)[0], device="cpu")
    assert torch.equal(kept, torch.ones(shape))
