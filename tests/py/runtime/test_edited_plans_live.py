"""The life of a step with an edited plan: recompilation, checkpoints, steps over the same memory, every way to compile one."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from edited_plans import Trained, adam
from models import mlp, mse, regression, values
from oracle import assert_same_bits
from plan_edits import other_places
from torch import nn

import aicf_mlir
from aicf_mlir import AicfError, BindError, GuardError, compile_eval_step, compile_step
from aicf_mlir.dialects.plan import find_program
from aicf_mlir.text.parsing import parse_module


class Scaled(nn.Module):
    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.factor, self.seen = nn.Linear(8, 8), factor, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.factor


def edited(trained: Trained, folder: Path) -> Path:
    """Its plan with other addresses."""
    module = parse_module(trained.plan())
    other_places(module)
    path = folder / "edited.mlir"
    path.write_text(str(module))
    return path


def test_the_file_is_read_once_and_recompiling_keeps_the_plan(device: str, tmp_path: Path) -> None:
    trained = Trained(Scaled, device=device)
    path = edited(trained, tmp_path)
    step = trained.compiled(plan=path)
    text = step.ir("plan")
    step.train_step(trained.batch)
    path.write_text("changed later")
    trained.model.seen = 3
    step.train_step(trained.batch)
    weight = trained.model.get_parameter("layer.weight")
    weight.data = weight.data.clone()  # has to be bound anew
    with pytest.raises(BindError, match="was moved after compilation"):
        step.train_step(trained.batch)
    step.recompile()
    assert step.ir("plan") == text and step.guards()[-1].path == "plan"
    step.train_step(trained.batch)
    own = Trained(Scaled, device=device)
    other = own.compiled()
    for _ in range(3):
        other.train_step(own.batch)
    assert_same_bits(trained.values(), own.values())


def test_another_step_does_not_keep_the_plan(tmp_path: Path) -> None:
    trained = Trained(Scaled)
    path = edited(trained, tmp_path)
    step = trained.compiled(plan=path)
    step.train_step(trained.batch)
    before = trained.values()
    trained.model.factor = 3.0
    with pytest.raises(GuardError, match=r"model\.factor was 2\.0, now 3\.0"):
        step.train_step(trained.batch)
    message = r"edited.mlir: the step is another than the one that this plan was given for \(.*\), and a plan is not"
    with pytest.raises(BindError, match=message):
        step.recompile()
    assert_same_bits(trained.values(), before)
    trained.model.factor = 2.0
    step.train_step(trained.batch)  # as it was
    trained.model.factor = 3.0
    anew = trained.compiled(plan=path)  # is the user's word, and told
    anew.train_step(trained.batch)
    certificate = anew.capture(trained.batch, verify="bitwise", steps=1)
    assert not certificate.equal and "computes by other formulas param 'layer.weight'" in str(
        certificate.plan
    )


def test_it_shares_memory_and_checkpoints_with_the_own_plan(device: str, tmp_path: Path) -> None:
    trained, control = Trained(device=device), Trained(device=device)
    path = edited(trained, tmp_path)
    own, step = trained.compiled(), trained.compiled(plan=path)
    single = control.compiled()
    for each in (own, step, step, own):
        each.train_step(trained.batch)
        single.train_step(control.batch)
    assert_same_bits(trained.values(), control.values())
    step.capture(trained.batch)
    step.replay(2)
    snapshot = step.snapshot()
    step.save(tmp_path / "edited.safetensors")
    expected = step.replay(3)
    after = trained.values()
    step.restore(snapshot)
    own.warmup(trained.batch, 2)
    assert_same_bits({"loss": step.replay(3)}, {"loss": expected})
    assert_same_bits(trained.values(), after)
    other = Trained(device=device)
    alone = other.compiled(plan=path)
    alone.load(tmp_path / "edited.safetensors")
    for _ in range(3):
        alone.train_step(other.batch)
    assert_same_bits(other.values(), after)
    single.load(tmp_path / "edited.safetensors")
    for _ in range(3):
        single.train_step(control.batch)
    assert_same_bits(control.values(), after)
    step.close()
    own.train_step(trained.batch)


def test_an_evaluation_step(tmp_path: Path) -> None:
    model, batch = mlp(8, 17, 8), regression(5)
    own = compile_eval_step(model, example=batch, device="cpu")
    path = tmp_path / "edited.mlir"
    path.write_text(own.ir("plan"))
    step = compile_eval_step(model, example=batch, device="cpu", plan=path)
    assert_same_bits({"loss": step.eval_step(batch)}, {"loss": own.eval_step(batch)})
    assert step.guards()[-1].path == "plan"
    trained = Trained()
    with pytest.raises(BindError, match=r"it lacks host_scalar 'lr', f64\[\]; .* and 17 more; write"):
        trained.compiled(plan=path)


def test_a_loop_body(tmp_path: Path) -> None:
    def made(**options: Any) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
        model = mlp(8, 17, 8)
        optimizer = adam(model)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

        def body(batch: dict[str, torch.Tensor]) -> torch.Tensor:
            optimizer.zero_grad()
            loss = mse(model, batch)
            loss.backward()
            optimizer.step()
            scheduler.step()
            return loss

        return model, optimizer, body

    batch, path = regression(5), tmp_path / "edited.mlir"
    model, optimizer, body = made()
    own = compile_step(body, example=batch, device="cpu")
    path.write_text(own.ir("plan"))
    for _ in range(3):
        own(batch)
    expected = values(model, optimizer)
    model, optimizer, body = made()
    step = compile_step(body, example=batch, device="cpu", plan=path)
    for _ in range(3):
        step(batch)
    assert_same_bits(values(model, optimizer), expected)
    model, optimizer, body = made()
    decorated = aicf_mlir.train_step(device="cpu", plan=str(path))(body)
    for _ in range(3):
        decorated(batch)
    assert_same_bits(values(model, optimizer), expected)
    assert decorated.step.guards()[-1].path == "plan"


def test_the_short_form(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = aicf_mlir.nn.Sequential(aicf_mlir.nn.Linear(8, 8), aicf_mlir.nn.ReLU())
    twin, path = copy.deepcopy(model), tmp_path / "edited.mlir"
    model.compile(optimizer=aicf_mlir.optim.Adam(model), B=4, D=8, device="cpu")
    path.write_text(model.compiled_step.ir("plan"))
    twin.compile(optimizer=aicf_mlir.optim.Adam(twin), B=4, D=8, device="cpu", plan=path)
    batch = regression(4)
    for each in (model, twin):
        each.train_step(batch)
    assert_same_bits(dict(twin.state_dict()), dict(model.state_dict()))


def test_a_step_that_shares_a_parameter_without_elements(tmp_path: Path) -> None:
    """An edited plan may put it wherever it likes; the others stay where they are."""
    trained, control = Trained(WithNothing), Trained(WithNothing)
    own = trained.compiled()
    text = own.ir("plan")
    module = parse_module(text)
    slots = find_program(module).slots
    nothing = next(slot for slot in slots.values() if slot.label is not None and slot.label.data == "nothing")
    nothing.detach()
    program = find_program(module)
    program.body.block.insert_op_before(nothing, program.launches[0])
    for offset in (0, 256, 512):
        nothing.set_place(nothing.role.data, offset)
        path = tmp_path / "edited.mlir"
        path.write_text(str(module))
        step = trained.compiled(plan=path)
        step.train_step(trained.batch)
    single = control.compiled()
    for _ in range(3):
        single.train_step(control.batch)
    assert_same_bits(trained.values(), control.values())


class WithNothing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(8, 8)
        self.nothing = nn.Parameter(torch.zeros(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.nothing.sum()


def test_a_failure_on_the_way_leaves_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = Trained()
    path = edited(trained, tmp_path)
    before, places = trained.values(), trained.places()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for target in (
        "aicf_mlir.runtime.plan_file.verify_module",
        "aicf_mlir.runtime.plan_file.PlanComparison.of",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, interrupted)
            with pytest.raises(KeyboardInterrupt):
                trained.compiled(plan=path)
        assert trained.places() == places and not trained.trained_by.state
        assert_same_bits(trained.values(), before)
    with pytest.raises(AicfError):
        trained.compiled(plan=tmp_path / "none.mlir")
    trained.compiled(plan=path).train_step(trained.batch)
