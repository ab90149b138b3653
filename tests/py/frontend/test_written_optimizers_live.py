"""What changes around an optimizer whose step was traced is followed, or refused by name."""
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from models import Batch, mlp, mse, regression
from oracle import same_bits
from written_optimizers import RIGHT, AdaBelief, Lion, PlainAdam, Written
from written_pair import Pair, batches

from aicf_mlir import compile_train_step
from aicf_mlir.errors import BindError, GuardError, TraceError
from aicf_mlir.frontend import trace
from aicf_mlir.tools.aicf_opt import main


def test_a_number_that_it_decides_by(device: str) -> None:
    pair = Pair(RIGHT["plain-adam-decay"], device, double=True)
    (batch,) = batches(device, 1, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device=device)
    for decay in (0.1, 0.2):
        pair.set("weight_decay", decay)
        step.train_step(batch)
        pair.in_torch(batch)
    pair.assert_equal(1e-10)
    pair.set("weight_decay", 0.0)
    before = [p.detach().clone() for p in pair.model.parameters()]
    with pytest.raises(GuardError, match=r"PlainAdam.step reads at .*weight_decay.* call recompile"):
        step.train_step(batch)
    for p, old in zip(pair.model.parameters(), before, strict=True):
        assert same_bits(p.detach(), old)
    step.recompile()
    step.train_step(batch)
    pair.in_torch(batch)
    pair.assert_equal(1e-10)


def test_a_number_that_was_only_compared() -> None:
    pair = Pair(RIGHT["plain-adam"], "cpu")
    (batch,) = batches("cpu", 1)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device="cpu")
    step.train_step(batch)
    pair.set("weight_decay", 0.3)
    with pytest.raises(GuardError, match="weight_decay") as refused:
        step.train_step(batch)
    assert "recompile()" in str(refused.value) and "meta=" not in str(refused.value)
    pair.set("weight_decay", 0.0)
    step.train_step(batch)


class Asking(Written):
    """Looks for entries that nobody has given, and into one that is a list."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, _, group in self.entries():
            rate = group["lr"] * (2.0 if group.get("twice") else 1.0) * (3.0 if "more" in group else 1.0)
            p.add_(grad, alpha=-rate if "grow" not in group["modes"] else rate)
            low, high = group["limits"]
            p.clamp_(low if low is not None else -9.0, high)


class Repeated(Written):
    """Counts with a hyperparameter."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, _, group in self.entries():
            for _ in range(group["times"]):
                p.sub_(grad * group["lr"])


def test_a_number_that_is_counted_with() -> None:
    pair = Pair(lambda groups: Repeated(groups, lr=0.1, times=2), "cpu", double=True)
    (batch,) = batches("cpu", 1, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device="cpu")
    for lr in (0.1, 0.05):
        pair.set("lr", lr)
        step.train_step(batch)
        pair.in_torch(batch)
    pair.assert_equal(1e-10)
    for times in (3, 2.5):
        pair.set("times", times)
        with pytest.raises(GuardError, match="times"):
            step.train_step(batch)


CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "an entry that was missing": lambda group: group.update(twice=True),
    "a key that was missing": lambda group: group.update(more=1),
    "a member of a list": lambda group: group["modes"].append("grow"),
    "a None among numbers": lambda group: group.update(limits=(-0.01, 9.0)),
    "fewer numbers": lambda group: group.update(limits=(9.0,)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_is_no_number_in_a_group_is_guarded(change: Callable[[dict[str, Any]], None]) -> None:
    pair = Pair(
        lambda groups: Asking(groups, lr=0.1, modes=["plain"], limits=(None, 9.0)), "cpu", double=True
    )
    (batch,) = batches("cpu", 1, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device="cpu")
    pair.set("limits", (None, 0.3))
    pair.set("never_read", 5)
    step.train_step(batch)
    pair.in_torch(batch)
    pair.assert_equal(1e-10)
    before = [p.detach().clone() for p in pair.model.parameters()]
    change(pair.ours.param_groups[0])
    with pytest.raises((GuardError, BindError)):
        step.train_step(batch)
    for p, old in zip(pair.model.parameters(), before, strict=True):
        assert same_bits(p.detach(), old)


class InPlace(Written):
    """Changes the gradient itself, as torch's own examples do."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, _, group in self.entries():
            grad.add_(p, alpha=group["weight_decay"])
            p.sub_(grad.mul_(group["lr"]))


def test_a_gradient_that_is_changed_in_place(device: str) -> None:
    pair = Pair(lambda groups: InPlace(groups, lr=0.1, weight_decay=0.1), device, double=True)
    (batch,) = batches(device, 1, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device=device)
    for _ in range(3):
        step.train_step(batch)
        pair.in_torch(batch)
    pair.assert_equal(1e-10)


def test_cleared_state_begins_anew(device: str) -> None:
    pair = Pair(RIGHT["plain-adam"], device, double=True)
    (batch,) = batches(device, 1, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device=device)
    assert not pair.ours.state
    for number in range(6):
        if number == 3:
            for optimizer in pair.optimizers:
                optimizer.state.clear()
        step.train_step(batch)
        pair.in_torch(batch)
    pair.assert_equal(1e-10)


def test_slow_weights_begin_as_the_weights_are_then() -> None:
    pair = Pair(RIGHT["lookahead"], "cpu", double=True)
    (batch,) = batches("cpu", 1, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device="cpu")
    with torch.no_grad():
        for model in (pair.model, pair.other):
            for p in model.parameters():
                p.mul_(2.0)
    for _ in range(3):
        step.train_step(batch)
        pair.in_torch(batch)
    pair.assert_equal(1e-10)


def test_checkpoint_and_warmup(tmp_path: Any) -> None:
    pair = Pair(RIGHT["adabelief"], "cpu", double=True)
    given = batches("cpu", 4, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=given[0], device="cpu")
    step.train_step(given[0])
    step.save(tmp_path / "saved")
    kept = [p.detach().clone() for p in pair.model.parameters()]
    step.warmup(given[1])
    for batch in given[1:]:
        step.train_step(batch)
    step.load(tmp_path / "saved")
    for p, old in zip(pair.model.parameters(), kept, strict=True):
        assert same_bits(p.detach(), old)
        assert float(pair.ours.state[p]["step"]) == 1.0
    for batch in given:
        pair.in_torch(batch)
    for batch in given[1:]:
        step.train_step(batch)
    pair.assert_equal(1e-10)


def test_numbers_are_numbers_where_torch_keeps_them() -> None:
    pair = Pair(RIGHT["plain-adam"], "cpu")
    (batch,) = batches("cpu", 1)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device="cpu")
    for _ in range(3):
        step.train_step(batch)
    first = next(iter(pair.model.parameters()))
    assert float(pair.ours.state[first]["step"]) == 3.0
    written = pair.ours.state_dict()["state"][0]["step"]
    assert (type(written), written) == (int, 3)
    step.close()
    assert (type(pair.ours.state[first]["step"]), pair.ours.state[first]["step"]) == (int, 3)


def test_a_subclass_with_a_step_of_its_own(device: str) -> None:
    class Clamped(torch.optim.SGD):
        """Keeps the weights in a box."""

        limit = 0.2

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad * group["lr"]).clamp_(-self.limit, self.limit)

    pair = Pair(lambda groups: Clamped(groups, lr=0.5), device, double=True)
    (batch,) = batches(device, 1, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device=device)
    for _ in range(3):
        step.train_step(batch)
        pair.in_torch(batch)
    pair.assert_equal(1e-10)
    Clamped.limit = 0.1
    with pytest.raises(GuardError, match="limit"):
        step.train_step(batch)
    step.recompile()
    step.train_step(batch)
    pair.in_torch(batch)
    pair.assert_equal(1e-10)


def test_a_step_put_into_the_object_is_refused() -> None:
    model = mlp(8, 17, 8)
    optimizer = RIGHT["lion"](model.parameters())
    vars(optimizer)["step"] = lambda: None
    with pytest.raises(TraceError, match="step of its own beside its class"):
        compile_train_step(model, optimizer, loss_fn=mse, example=regression(), device="cpu")


def test_a_parameter_without_a_gradient_is_passed_over() -> None:
    torch.manual_seed(0)
    model: Any = torch.nn.ModuleDict({"used": torch.nn.Linear(8, 8), "idle": torch.nn.Linear(8, 8)})
    optimizer = AdaBelief(model.parameters(), lr=0.1, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1)
    batch = regression()

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        return (model["used"](batch["x"]) - batch["t"]).square().mean() + 0.0 * model[
            "idle"
        ].weight.detach().sum()

    step = compile_train_step(model, optimizer, loss_fn=loss, example=batch, device="cpu")
    before = model["idle"].weight.detach().clone()
    step.train_step(batch)
    assert same_bits(model["idle"].weight.detach(), before)
    assert model["idle"].weight not in optimizer.state


def test_a_state_of_another_shape_is_refused() -> None:
    pair = Pair(RIGHT["lion"], "cpu")
    (batch,) = batches("cpu", 1)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device="cpu")
    step.train_step(batch)
    first = next(iter(pair.model.parameters()))
    pair.ours.state[first]["exp_avg"] = torch.zeros(3)
    with pytest.raises(BindError, match="exp_avg"):
        step.train_step(batch)


def test_numbers_of_the_process_are_as_before() -> None:
    before = (builtins.min, builtins.max, math.sqrt, vars(torch)["_foreach_add_"])
    for name in ("plain-adam", "foreach"):
        model = mlp(8, 17, 8)
        compile_train_step(
            model, RIGHT[name](model.parameters()), loss_fn=mse, example=regression(), device="cpu"
        )
    assert before == (builtins.min, builtins.max, math.sqrt, vars(torch)["_foreach_add_"])


def test_the_text_says_it_and_runs(tmp_path: Any) -> None:
    model = mlp(8, 17, 8)
    for optimizer in (
        Lion(model.parameters(), lr=0.1, betas=(0.9, 0.99), weight_decay=0.1),
        PlainAdam(model.parameters(), lr=0.1, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1),
    ):
        file = tmp_path / "step.mlir"
        file.write_text(str(trace(model, mse, regression(), optimizer=optimizer)))
        assert "func.func private @step_update" in file.read_text()
        assert main([str(file), "--stage", "plan", "--target", "sm_90"]) == 0


class Rounded(Written):
    """Looks at digits of its rate, and at a logarithm to a base."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, _, group in self.entries():
            p.sub_(grad, alpha=round(group["lr"], 1) + 0.1 * math.log(group["lr"] + 2, 10))


def test_a_function_of_a_number_with_further_arguments_reads_its_value() -> None:
    pair = Pair(lambda ps: Rounded(ps, lr=0.12), "cpu", double=True)
    (batch,) = batches("cpu", 1, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device="cpu")
    step.train_step(batch)
    pair.in_torch(batch)
    pair.assert_equal(1e-12)
    pair.set("lr", 0.34)
    with pytest.raises(GuardError, match="lr"):
        step.train_step(batch)
    step.recompile()
    step.train_step(batch)
    pair.in_torch(batch)
    pair.assert_equal(1e-12)


class Zeroing(Written):
    """Writes to a part of a gradient, for which torch makes a mask of several numbers."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, _, group in self.entries():
            grad.view(-1)[0] = 0
            p.sub_(grad, alpha=group["lr"])


def test_what_torch_makes_of_an_op_is_refused_with_its_reason() -> None:
    pair, (batch,) = Pair(lambda ps: Zeroing(ps, lr=0.1), "cpu"), batches("cpu", 1)
    with pytest.raises(
        TraceError,
        match=r"select_scatter.* torch decomposes it into aten.where.*: a tensor of several numbers",
    ):
        compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device="cpu")
