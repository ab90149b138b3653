"""Whether `replay(n)` leaves the bits of n steps, for any model, loss, optimizer and batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from aicf_mlir import BindError, CompiledTrainStep, compile_train_step

Built = tuple[
    torch.nn.Module, torch.optim.Optimizer, Callable[[Any, Any], torch.Tensor], dict[str, torch.Tensor]
]
"""A model and its optimizer on the device of the step, the loss, and a batch."""

SEED = 5
"""Of random numbers."""

Held = dict[str, torch.Tensor]
"""Tensors by name."""


def compiled(built: Built, device: str) -> CompiledTrainStep:
    """The step."""
    model, optimizer, loss, batch = built
    return compile_train_step(model, optimizer, loss_fn=loss, example=batch, device=device, seed=SEED)


def held(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    """Everything that a step may change, alive: parameters, buffers and optimizer state."""
    yield from model.named_parameters()
    yield from model.named_buffers()
    parameters = {id(parameter): name for name, parameter in model.named_parameters()}
    states: Mapping[Any, Mapping[str, Any]] = optimizer.state
    for parameter, state in states.items():
        for key, value in state.items():
            yield f"{key} of {parameters[id(parameter)]}", value


def state(built: Built) -> Held:
    """What `held` has now."""
    return {name: tensor.detach().clone() for name, tensor in held(*built[:2])}


def restore(built: Built, state: Held) -> None:
    """Write values back in place, which the step follows."""
    with torch.no_grad():
        for name, tensor in held(*built[:2]):
            tensor.copy_(state[name])


def draws(step: CompiledTrainStep) -> bool:
    """Whether the step has random numbers; they begin anew."""
    try:
        step.seed(SEED)
    except BindError:
        return False
    return True


def stepped(step: CompiledTrainStep, built: Built, steps: int) -> tuple[Held, Held, list[torch.Tensor]]:
    """The state after one step and after `steps`, and all losses."""
    losses = [step.train_step(built[3]).clone()]
    first = state(built)
    losses += [step.train_step(built[3]).clone() for _ in range(steps - 1)]
    return first, state(built), losses


def replay_differs(
    step: CompiledTrainStep, built: Built, first: Held, last: Held, losses: list[torch.Tensor]
) -> list[str]:
    """Names of what has other bits than `stepped` found if all steps but the first are a replay."""
    if draws(step):
        step.train_step(built[3])  # the first draw is that of the first step
    restore(built, first)
    step.capture(built[3])
    untouched = differences(state(built), first)
    loss = step.replay(len(losses) - 1)
    found = {**state(built), "the loss": loss.detach().clone()}
    return [f"{name} before the replay" for name in untouched] + differences(
        found, {**last, "the loss": losses[-1]}
    )


def differences(found: Held, wanted: Held) -> list[str]:
    """Names of tensors that differ in any bit, or that one side lacks."""
    return [
        name
        for name in sorted({*found, *wanted})
        if name not in found or name not in wanted or not same_bits(found[name], wanted[name])
    ]


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """NaN equals NaN of the same bits, and 0 is not -0."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    return torch.equal(a.contiguous().flatten().view(torch.uint8), b.contiguous().flatten().view(torch.uint8))


def copies(built: Built) -> Callable[[], Built]:
    """Builds the same again from a model and optimizer that have not run."""
    model, optimizer, loss, batch = built

    def build() -> Built:
        both: Any = copy.deepcopy((model, optimizer))
        return (*both, loss, batch)

    return build
