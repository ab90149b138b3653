"""`ema`: the moving average of the parameters, equal to torch's AveragedModel behind each step."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from models import mlp, mse, regression, to_device, to_dtype
from oracle import assert_all_right, assert_same_bits
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from aicf_mlir import BindError, compile_train_step
from aicf_mlir.step.compiled_step import CompiledTrainStep

STEPS, SKIPPED = 40, 5


def model_of(dtype: torch.dtype = torch.float32) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = mlp(8, 17, 8).to(dtype)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-3)


def batch_of(number: int) -> dict[str, torch.Tensor]:
    batch = regression(8, seed=number)
    if number == SKIPPED:
        batch["t"][0, 0] = math.inf
    return batch


def compiled(device: str = "cpu", ema: Any = 0.9, **options: Any) -> CompiledTrainStep:
    model, optimizer = model_of()
    given = {"loss_fn": mse, "example": regression(8), "loss_scale": 64.0, **options}
    return compile_train_step(model.to(device), optimizer, device=device, ema=ema, **given)


def in_torch(decay: float, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    model, optimizer = model_of(dtype)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
    scaler = torch.amp.GradScaler("cpu", 64.0)
    for number in range(STEPS):
        optimizer.zero_grad()
        scaler.scale(mse(model, to_dtype(batch_of(number), dtype))).backward()
        scaler.step(optimizer)
        scaler.update()
        average.update_parameters(model)
    return {name: p.detach() for name, p in average.module.named_parameters()}


@pytest.mark.parametrize("decay", [0.0, 0.3, 0.9, 0.999])
def test_forty_steps_beside_torch(decay: float, device: str) -> None:
    """Half of them replayed, one of them skipped: it averages the parameter that stayed, as torch's loop does."""
    step = compiled(device, decay)
    for number in range(STEPS):
        batch = to_device(batch_of(number), device)
        if number == STEPS // 2:
            step.capture(batch)
        _ = step.train_step(batch) if number < STEPS // 2 else step.replay(inputs=batch)
    assert step.skipped == 1
    assert_all_right(step.ema, in_torch(decay, torch.float32), in_torch(decay, torch.float64))


def test_replayed_restored_loaded_and_compiled_again(tmp_path: Path, device: str) -> None:
    step, other = compiled(device), compiled(device)
    batch = to_device(batch_of(0), device)
    beginning = step.ema
    step.warmup(batch, 3)
    other.warmup(batch)
    assert_same_bits(step.ema, beginning)
    other.capture(batch)
    for _ in range(7):
        step.train_step(batch)
    other.replay(7)
    seventh = step.ema
    assert_same_bits(other.ema, seventh)
    snapshot = step.snapshot()
    step.save(tmp_path / "saved")
    step.train_step(batch)
    eighth = step.ema
    step.restore(snapshot)
    assert_same_bits(step.ema, seventh)
    step.recompile()
    step.train_step(batch)
    assert_same_bits(step.ema, eighth)
    loaded = compiled(device)
    loaded.load(tmp_path / "saved")
    assert_same_bits(loaded.ema, seventh)
    loaded.train_step(batch)
    assert_same_bits(loaded.ema, eighth)
    assert loaded.capture(batch, verify="bitwise").equal


def test_what_the_step_does_not_train_has_no_average() -> None:
    """A frozen layer, and one that the loss does not use: they are what they are in the model."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 8))
    model.register_parameter("unused", nn.Parameter(torch.ones(3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = compile_train_step(model, optimizer, B=4, D=8, device="cpu", ema=0.9)
    assert list(step.ema) == ["0.weight", "0.bias", "2.weight", "2.bias"]


class Layers(nn.Module):
    """Some layers, whose loss a step trains."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 17), nn.Linear(17, 8)
        self.optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        self.to(device)
        self.batch = to_device(regression(8), device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        body, head = self.children()
        return head(body(x).tanh())

    def compiled(self) -> CompiledTrainStep:
        """A step that has been taken thrice."""
        step = compile_train_step(
            self, self.optimizer, loss_fn=mse, example=self.batch, device=str(self.batch["x"].device), ema=0.9
        )
        for _ in range(3):
            step.train_step(self.batch)
        return step

    def put(self, body: str, layer: nn.Module, head: str, last: nn.Module) -> None:
        """Other layers or names, which the optimizer is given."""
        del self.body, self.head
        self.add_module(body, layer)
        self.add_module(head, last)
        self.optimizer.param_groups[0]["params"] = list(self.parameters())

    def now(self) -> dict[str, torch.Tensor]:
        return {name: p.detach().clone() for name, p in self.named_parameters()}


def of(averages: dict[str, torch.Tensor], layer: str) -> dict[str, torch.Tensor]:
    return {name: average for name, average in averages.items() if name.startswith(f"{layer}.")}


def trains_on(step: CompiledTrainStep, model: Layers) -> None:
    """Each average goes a tenth of the way to where its parameter is behind the next step."""
    before = step.ema
    step.train_step(model.batch)
    expected = {name: before[name].lerp(p, 0.1) for name, p in model.now().items() if name in before}
    torch.testing.assert_close(step.ema, expected)


def test_frozen_it_is_gone_and_begins_anew(device: str) -> None:
    model = Layers(device)
    step = model.compiled()
    kept = of(step.ema, "head")
    model.body.requires_grad_(False)
    step.recompile()
    assert_same_bits(step.ema, kept)
    trains_on(step, model)
    kept = step.ema
    model.body.requires_grad_(True)
    step.recompile()
    assert_same_bits(step.ema, {**of(model.now(), "body"), **kept})
    trains_on(step, model)


@pytest.mark.parametrize("width", [17, 5])
def test_another_layer_of_the_same_name_begins_anew(width: int, device: str) -> None:
    model = Layers(device)
    step = model.compiled()
    kept = of(step.ema, "head") if width == 17 else {}
    head = model.head if width == 17 else nn.Linear(width, 8).to(device)
    model.put("body", nn.Linear(8, width).to(device), "head", head)
    step.recompile()
    assert_same_bits(step.ema, {**model.now(), **kept})
    trains_on(step, model)


def test_the_same_parameter_keeps_it_under_another_name(device: str) -> None:
    model = Layers(device)
    step = model.compiled()
    kept = step.ema
    model.put("first", model.body, "second", model.head)
    step.recompile()
    names = {"body": "first", "head": "second"}
    expected = {f"{names[n.split('.')[0]]}.{n.split('.')[1]}": average for n, average in kept.items()}
    assert_same_bits(step.ema, expected)
    trains_on(step, model)


def test_what_cannot_be_compiled_leaves_them() -> None:
    """The new layer has an average only once the step is compiled with it, and begins as it is then."""
    model = Layers("cpu")
    step = model.compiled()
    kept = step.ema
    model.put("body", nn.Linear(8, 17), "head", model.head)
    model.register_buffer("ema", torch.ones(()))
    forward = model.forward
    model.forward = lambda x: forward(x) * model.get_buffer("ema")  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(BindError, match="the model has a tensor 'ema'"):
        step.recompile()
    assert_same_bits(step.ema, kept)
    model.forward = forward  # pyright: ignore[reportAttributeAccessIssue]
    nn.init.ones_(model.body.weight)
    step.recompile()
    assert_same_bits(step.ema, {**model.now(), **of(kept, "head")})


def test_in_another_type_it_is_cast() -> None:
    """A parameter whose elements are of another type by now is still the same."""
    model, batch = nn.Linear(8, 8), regression(4)
    step = compile_train_step(
        model, torch.optim.SGD(model.parameters(), lr=0.1), B=4, D=8, device="cpu", ema=0.9
    )
    step.train_step(batch)
    step.train_step(batch)
    kept = step.ema
    model.double()
    step.recompile()
    assert_same_bits(step.ema, {name: average.double() for name, average in kept.items()})
    step.train_step(to_dtype(batch, torch.float64))
    expected = {name: kept[name].double().lerp(p.detach(), 0.1) for name, p in model.named_parameters()}
    torch.testing.assert_close(step.ema, expected)


def test_what_is_read_is_a_copy() -> None:
    step = compiled()
    for tensor in step.ema.values():
        tensor.zero_()
    assert all(tensor.any() for name, tensor in step.ema.items() if name.endswith("weight"))


@pytest.mark.parametrize("wrong", [1.0, -0.1, math.inf])
def test_what_is_no_decay_is_refused(wrong: float) -> None:
    with pytest.raises(BindError, match="ema must be a decay from 0 to below 1"):
        compiled(ema=wrong)
    with pytest.raises(BindError, match="ema must be a real number"):
        compiled(ema="0.9")


def test_names_of_averages_are_not_the_models() -> None:
    model, optimizer = model_of()
    model.register_buffer("ema", torch.ones(()))
    with pytest.raises(BindError, match="the model has a tensor 'ema', as a step with ema has; rename it"):
        compile_train_step(
            model,
            optimizer,
            loss_fn=lambda model, batch: mse(model, batch) * model.get_buffer("ema"),
            example=regression(8),
            device="cpu",
            ema=0.9,
        )


def test_a_step_without_has_no_average() -> None:
    with pytest.raises(BindError, match="the step has no average of its parameters; compile with ema="):
        _ = compiled(ema=None).ema
