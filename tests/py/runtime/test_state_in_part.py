"""State of an optimizer that lacks an entry is refused where torch's step raises KeyError, and begins anew where torch's does."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from models import OPTIMIZERS, Setup, compiled, mlp, mse, regression, values
from oracle import assert_all_right, assert_same_bits
from torch import nn
from written_optimizers import RIGHT

from aicf_mlir.errors import BindError
from aicf_mlir.optim import Lion

MISSING = (
    r"optimizer state {} of parameter '0\.weight' is missing; load a state_dict with it, or remove all state"
)


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.Optimizer:
    """The optimizer behind some steps of torch, in the model's own type."""
    batch = {name: t.to(next(model.parameters()).dtype) for name, t in regression(5).items()}
    for _ in range(steps):
        optimizer.zero_grad()
        mse(model, batch).backward()
        optimizer.step()
    return optimizer


def kinds() -> Iterator[Any]:
    """Each class with each set of states, and each of those."""
    seen: set[tuple[str, ...]] = set()
    for config in OPTIMIZERS:
        model = mlp(8, 17, 8)
        keys = tuple(trained(model, config(model), 1).state[model[0].weight])
        if (kind := (config.kind.__name__, *keys)) not in seen:
            seen.add(kind)
            yield from (pytest.param(config, key, id=f"{'-'.join(kind)}-without-{key}") for key in keys)


def without(setup: Setup, key: str) -> dict[str, torch.Tensor]:
    """What is trained, behind the loss of one entry of the first weight."""
    del setup.optimizer.state[setup.model[0].weight][key]
    return setup.values()


@pytest.mark.parametrize(("config", "key"), list(kinds()))
def test_one_entry_is_missing(config: Callable[[Any], torch.optim.Optimizer], key: str) -> None:
    """Then nothing has changed, and with it training goes on."""
    setup, control = compiled(config), compiled(config)
    setup.train(3)
    control.train(3)
    saved = copy.deepcopy(setup.optimizer.state_dict())
    runs = [(model, config(model)) for model in (mlp(8, 17, 8), mlp(8, 17, 8).double())]
    for model, optimizer in runs:
        trained(model, optimizer, 3)
        del optimizer.state[model[0].weight][key]
    before = without(setup, key)
    if key == "momentum_buffer" and isinstance(setup.optimizer, torch.optim.SGD):
        setup.train()
        assert_all_right(setup.values(), *(values(model, trained(model, o, 1)) for model, o in runs))
        return
    if not isinstance(setup.optimizer, Lion):  # which has that one alone: without it there is none
        for run in runs:
            with pytest.raises(KeyError, match=key):
                trained(*run, 1)
        with pytest.raises(BindError, match=MISSING.format(f"'{key}'")):
            setup.train()
        assert_same_bits(setup.values(), before)
    setup.optimizer.load_state_dict(saved)
    setup.train(2)
    control.train(2)
    assert_same_bits(setup.values(), control.values())


def test_all_that_is_missing_is_named() -> None:
    """An Adam with what an SGD leaves, and one of a step alone."""
    setup = compiled(lambda model: torch.optim.Adam(model.parameters()))
    weight = setup.model[0].weight
    setup.optimizer.state[weight] = {"momentum_buffer": torch.ones_like(weight)}
    with pytest.raises(BindError, match=MISSING.format("'step', 'exp_avg', 'exp_avg_sq'")):
        setup.train()
    setup.optimizer.state[weight] = {"step": torch.tensor(3.0)}
    with pytest.raises(BindError, match=MISSING.format("'exp_avg', 'exp_avg_sq'")):
        setup.train()
    del setup.optimizer.state[weight]
    setup.train()
    assert float(setup.optimizer.state[weight]["step"]) == 1


def test_a_state_that_is_new_behind_some_steps() -> None:
    """As in torch, what has no largest square so far cannot have one from now on."""
    setup = compiled(lambda model: torch.optim.Adam(model.parameters()))
    setup.train(2)
    setup.optimizer.param_groups[0]["amsgrad"] = True
    with pytest.raises(BindError, match=MISSING.format("'max_exp_avg_sq'")):
        setup.step.recompile()
    setup.optimizer.param_groups[0]["amsgrad"] = False
    setup.train()


def test_of_an_optimizer_that_was_traced() -> None:
    """It was traced from no state and from all of it; what it does with a part, nobody has seen."""
    setup = compiled(lambda model: RIGHT["plain-adam"](model.parameters()))
    setup.train(2)
    keys = list(setup.optimizer.state[setup.model[0].weight])
    assert len(keys) > 1
    before = without(setup, keys[0])
    with pytest.raises(BindError, match=MISSING.format(f"'{keys[0]}'")):
        setup.train()
    assert_same_bits(setup.values(), before)
    del setup.optimizer.state[setup.model[0].weight]
    setup.train()
