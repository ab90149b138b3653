"""What of a torch optimizer is compiled in, and which optimizers are refused."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from described_optimizers import OPTIMIZERS
from torch import nn

import aicf_mlir
from aicf_mlir import optim
from aicf_mlir.dialects.optimizer_groups import ParamGroup, parse_groups
from aicf_mlir.errors import StateError, TraceError
from aicf_mlir.frontend.optimizer import describe, trained_parameters
from aicf_mlir.optimizers.adam import Adam
from aicf_mlir.optimizers.sgd import Sgd


def model_and_names() -> tuple[nn.Sequential, dict[torch.Tensor, str]]:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    return model, {parameter: name for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_group(name: str) -> None:
    make, rule = OPTIMIZERS[name]
    model, names = model_and_names()
    optimizer = make(model.parameters())
    assert parse_groups(describe(optimizer, names)) == [ParamGroup(rule, tuple(names.values()))]


def test_groups_keep_their_order_and_their_flags() -> None:
    model, names = model_and_names()
    model[1].bias.requires_grad_(False)
    groups = [
        {"params": [model[1].weight, model[1].bias], "momentum": 0.9},
        {"params": [model[0].bias], "maximize": True},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    trained = trained_parameters(optimizer, names)
    assert trained == {model[1].weight, model[0].bias}
    read = {tensor: name for tensor, name in names.items() if tensor in trained}
    assert parse_groups(describe(optimizer, read)) == [
        ParamGroup(Sgd(momentum=True), ("1.weight",)),
        ParamGroup(Sgd(maximize=True), ("0.bias",)),
    ]


def test_a_group_without_trained_parameters_keeps_its_place() -> None:
    model, names = model_and_names()
    dead = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.Adam([{"params": [dead]}, {"params": list(model.parameters())}])
    groups = parse_groups(describe(optimizer, names))
    assert [group.params for group in groups] == [(), tuple(names.values())]


def test_a_first_instance_of_a_subclass_is_no_new_update() -> None:
    class Mine(torch.optim.AdamW):
        """Torch wraps `step` of the class of an optimizer when the first one is made."""

    model, names = model_and_names()
    assert parse_groups(describe(Mine(model.parameters()), names))[0].rule == Adam(decoupled=True)


class OwnStep(torch.optim.SGD):
    """Another update under the name of a subclass."""

    def step(self, closure: Any = None) -> Any:
        return None


def hooked(parameters: Any) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: None)
    return optimizer


REFUSED: dict[str, tuple[Callable[[Any], torch.optim.Optimizer], str]] = {
    "class": (lambda p: torch.optim.LBFGS(p), "no rule describes LBFGS"),
    "step": (lambda p: OwnStep(p, lr=0.1), "no rule describes OwnStep"),
    "hooks": (hooked, "step hooks"),
    "differentiable": (lambda p: torch.optim.Adam(p, differentiable=True), "group 0 has differentiable=True"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, message = REFUSED[name]
    model, names = model_and_names()
    with pytest.raises(TraceError, match=message):
        describe(make(model.parameters()), names)


def test_a_parameter_of_another_model_is_named() -> None:
    model, names = model_and_names()
    other = copy.deepcopy(model)
    optimizer = torch.optim.SGD([{"params": model.parameters()}, {"params": other.parameters()}], lr=0.1)
    with pytest.raises(
        TraceError, match=r"parameter 0 of param group 1, float32\[4, 4\], is not a parameter"
    ):
        trained_parameters(optimizer, names)


def test_parameters_of_integers_are_refused() -> None:
    weight = nn.Parameter(torch.zeros(2, dtype=torch.int64), requires_grad=False)
    with pytest.raises(TraceError, match=r"parameter 0 of param group 0, int64\[2\], is not a dense tensor"):
        trained_parameters(torch.optim.SGD([weight], lr=0.1), {weight: "weight"})


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_our_optimizers_take_what_torchs_take(name: str) -> None:
    ours, theirs = getattr(optim, name), getattr(torch.optim, name)
    model = aicf_mlir.nn.Sequential(aicf_mlir.nn.Linear(4, 4), aicf_mlir.nn.Linear(4, 4))
    everything = list(model.parameters())
    for given in (model, model.parameters(), everything, model.named_parameters()):
        assert ours(given, 0.5).param_groups[0]["params"] == everything
    groups = ours([{"params": model[0]}, {"params": model[1].parameters(), "lr": 0.1}], lr=0.5).param_groups
    assert [group["lr"] for group in groups] == [0.5, 0.1]
    assert groups[0]["params"] == list(model[0].parameters())
    assert inspect.signature(ours) == inspect.signature(theirs)
    for wrong in (torch.zeros(3), [], [3]):
        with pytest.raises((TypeError, ValueError)) as caught:
            theirs(wrong)
        with pytest.raises(type(caught.value)):
            ours(wrong)


def test_bias_corrections_belong_to_a_compiled_step() -> None:
    optimizer = optim.Adam(nn.Linear(2, 2))
    with pytest.raises(StateError, match=r"bc1_inv belongs to a compiled step; call model\.compile"):
        _ = optimizer.bc1_inv
    with pytest.raises(StateError, match="bc2_inv"):
        optimizer.bc2_inv = 1.0


def test_modules_before_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch.distributions.Distribution, "_validate_args", True
    )  # torch's compiler turns it off
    model = aicf_mlir.nn.Sequential(aicf_mlir.nn.Linear(2, 2), aicf_mlir.nn.ReLU())
    for call in (
        lambda: model.train_step({}),
        lambda: model.capture(),
        lambda: model.replay(),
        lambda: model.reset(),
        lambda: model.snapshot(),
    ):
        with pytest.raises(StateError, match=r"this Sequential is not compiled; call compile\(optimizer="):
            call()
    model.compile(backend="eager")  # torch's own, as on any module
    assert model(torch.zeros(1, 2)).shape == (1, 2)


def test_a_compiled_module_can_be_copied_and_saved() -> None:
    model = aicf_mlir.nn.Sequential(aicf_mlir.nn.Linear(2, 2))
    vars(model)["_aicf_step"] = lambda: None  # as little copied or pickled as a compiled step
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert "_aicf_step" not in vars(twin)
        assert torch.equal(twin[0].weight, model[0].weight)
