"""How far a compiled training may be from eager torch's: as far as rounding alone takes torch from itself.

AdamW makes steps of full size of gradients that are zero but for rounding, so no fixed tolerance is right for all models. Torch
runs again from parameters that are moved by up to two units in the last place; a tensor may miss by three times what that changes
of it. Where it misses by more they are moved by up to 16 units: activations of a deep model are so far from those of f64, and an
activation near 0 that relu passes to the one and not to the other changes a gradient by more than rounding does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

Tensors = Mapping[str, torch.Tensor]

LOSS, MOVEMENT = 3e-4, 3e-3
"""Always allowed in f32, relative to the largest element: of losses, and of what has changed of a parameter, buffer or state.
In f64 as many units in the last place."""
LOW_LOSS, LOW_MOVEMENT = 2e-2, 5e-2
"""The same of a step that computes in 16 bits."""
ABOVE_ROUNDING = 3.0
UNITS = 4.0
"""In the last place of the largest element: a value that moves by less has rounded the movement away."""


@dataclass(frozen=True)
class Run:
    """One training: what it has given and what it has left."""

    losses: torch.Tensor
    before: Tensors
    after: Tensors
    """Parameters, buffers and states of optimizers, in their own types on the host; complex numbers as pairs."""
    draws: bool = False
    """Whether the steps have drawn random numbers of torch's."""

    def movement(self) -> dict[str, torch.Tensor]:
        """The change of each tensor in float64: a learning rate that is 1 % off shows here, and hardly in the values."""
        return {
            name: value.double() - self.before[name].double()
            if name in self.before and self.before[name].shape == value.shape
            else value.double()
            for name, value in self.after.items()
        }


def state(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, torch.Tensor]:
    """Copies of all parameters, buffers and optimizer states, by name."""
    found = {f"parameter {name}": value for name, value in model.named_parameters()}
    found |= {f"buffer {name}": value for name, value in model.named_buffers()}
    for number, optimizer in enumerate(optimizers):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for place, parameter in enumerate(parameters):
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    value = torch.tensor(float(value), dtype=torch.float64)  # a tensor while a step lives
                if isinstance(value, torch.Tensor):
                    found[f"state {key} of parameter {place} of optimizer {number}"] = value
    return {name: plain(value) for name, value in found.items()}


def plain(value: torch.Tensor) -> torch.Tensor:
    """A copy on the host; complex numbers as pairs."""
    host = value.detach().to("cpu", copy=True)
    return torch.view_as_real(host) if host.is_complex() else host


def moved(model: nn.Module, seed: int, most: float = 2) -> None:
    """Move each parameter by up to `most` units in the last place."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.is_floating_point():
            units = (
                torch.rand(parameter.shape, generator=generator, dtype=torch.float64, device="cpu") * 2 - 1
            ) * most
            change = (1 + units * torch.finfo(parameter.dtype).eps).to(parameter.device)
            parameter.data.copy_((parameter.data.double() * change).to(parameter.dtype))


def deviation(values: torch.Tensor, truth: torch.Tensor) -> float:
    """The largest difference relative to the truth's largest element; infinite where only one of them is finite."""
    if values.shape != truth.shape:
        return float("inf")
    finite = truth.isfinite()
    if not torch.equal(finite, values.isfinite()) or not torch.equal(
        values[~finite].nan_to_num(), truth[~finite].nan_to_num()
    ):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = truth[finite].abs().max() + 1e-12
    return ((values[finite] - truth[finite]).abs().max() / scale).item()


def excess(ours: Run, truth: Run, others: Sequence[Run], low: bool = False) -> tuple[float, str]:
    """How many times what is allowed the worst tensor misses by, and its name; right is at most 1."""
    of_loss, of_movement = (LOW_LOSS, LOW_MOVEMENT) if low else (LOSS, MOVEMENT)
    losses = [run.losses.double() for run in (ours, truth, *others)]
    found = [_excess("loss", losses[0], losses[1], losses[2:], of_loss * precision(truth.losses))]
    wanted, got, apart = truth.movement(), ours.movement(), [run.movement() for run in others]
    for name in wanted.keys() - got.keys():
        if is_table(name, truth, others):
            wanted.pop(name)
    if got.keys() != wanted.keys():
        return float("inf"), f"only in one of them: {sorted(got.keys() ^ wanted.keys())}"
    for name, value in wanted.items():
        if ours.after[name].dtype != truth.after[name].dtype:
            return float("inf"), f"{name}: {ours.after[name].dtype}, torch has {truth.after[name].dtype}"
        allowed = of_movement * precision(truth.after[name])
        missed = _excess(name, got[name], value, [run[name] for run in apart], allowed)
        if missed[0] > 1 and rounded_away(ours, truth, name):
            continue
        found.append(missed)
    return max(found)


def precision(value: torch.Tensor) -> float:
    """The unit in the last place to that of f32, where it is less: f64 is judged by its own."""
    return (
        torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps
        if value.dtype == torch.float64
        else 1.0
    )


def is_table(name: str, truth: Run, others: Sequence[Run]) -> bool:
    """True for a buffer that torch's steps make, always the same: a table that a compiled step computes and need not keep."""
    return (
        name.startswith("buffer")
        and name not in truth.before
        and all(torch.equal(truth.after[name], run.after[name]) for run in others)
    )


def rounded_away(ours: Run, truth: Run, name: str) -> bool:
    """True if both trainings move a tensor by no more than its values round, as a bias in front of a norm: its gradient is 0."""
    value = truth.before.get(name)
    if value is None or not value.is_floating_point():
        return False
    least = UNITS * torch.finfo(value.dtype).eps * max(float(value.abs().max()), 1e-30)
    return all(float(run.movement()[name].abs().max()) <= least for run in (ours, truth))


def _excess(
    name: str, ours: torch.Tensor, truth: torch.Tensor, others: Sequence[torch.Tensor], tolerance: float
) -> tuple[float, str]:
    rounding = max(deviation(other, truth) for other in others)
    missed = deviation(ours, truth)
    if missed == float("inf"):
        return missed, name
    return missed / max(tolerance, ABOVE_ROUNDING * rounding), name
