"""Where a compiled step and torch part under Adam: along gradients that are zero but for rounding, where torch parts from itself.

What counts as zero is judged by torch in float64: less than `ZERO` of the largest gradient, at some step. Where the loss is
a mean square of a norm, a step along the noise is enough to give the next one a gradient.
"""

from __future__ import annotations

import zlib
from typing import Any

import pytest
import torch
from replayed import Built, compiled, copies, stepped
from user_models.case import Case, descent
from user_models.zero_gradients import CASES, KEPT

STEPS = 4
ZERO = 1e-5
STEP = 1e-3
"""As far as Adam goes at once."""
SAME = 1e-4
"""Of a tensor's largest element, or of such a step where that is more: what float32 leaves of four steps."""

Values = dict[str, torch.Tensor]


def built(case: Case, name: str, optimizer: Any = None, dtype: torch.dtype = torch.float32) -> Built:
    """A case on the CPU with its own random numbers, the same in each dtype."""
    torch.manual_seed(zlib.crc32(name.encode()))
    model = case.model().to(dtype)
    batch = {k: v.to(dtype) if v.is_floating_point() else v for k, v in case.batch().items()}
    return model, (optimizer or case.optimizer)(model), case.loss, batch


def moved(built: Built, device: str) -> Built:
    """The same on a device, before the first step."""
    model, optimizer, loss, batch = built
    return model.to(device), optimizer, loss, {key: value.to(device) for key, value in batch.items()}


def torch_trained(built: Built) -> tuple[Values, Values]:
    """Parameters after some steps of torch, and each gradient's smallest sizes on the way as shares of the largest of all."""
    model, optimizer, loss, batch = built
    smallest: Values = {}
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(model, batch).backward()
        gradients = {
            name: p.grad.double().abs().cpu() for name, p in model.named_parameters() if p.grad is not None
        }
        largest = max(float(gradient.max()) for gradient in gradients.values())
        for name, gradient in gradients.items():
            share = gradient / largest
            smallest[name] = torch.minimum(smallest.get(name, share), share)
        optimizer.step()
    return {name: p.detach().double().cpu() for name, p in model.named_parameters()}, smallest


def ours_trained(built: Built, device: str) -> Values:
    """Parameters after as many compiled steps, in float64."""
    _, last, _ = stepped(compiled(built, device), built, STEPS)
    return {name: last[name].double().cpu() for name, _ in built[0].named_parameters()}


def apart(found: Values, wanted: Values, tolerance: float) -> Values:
    """By name: the elements that differ by more than `tolerance` of their tensor's largest or of a step."""
    return {
        name: (found[name] - wanted[name]).abs() > tolerance * max(float(wanted[name].abs().max()), STEP)
        for name in wanted
    }


def zeros_of(shares: Values) -> Values:
    """By name: the elements whose gradient has once been as good as zero."""
    return {name: share < ZERO for name, share in shares.items()}


def nowhere(like: Values) -> Values:
    """No element of any tensor."""
    return {name: torch.zeros_like(each) for name, each in like.items()}


def outside(marked: Values, allowed: Values) -> list[str]:
    """Tensors with an element that is marked and not allowed."""
    return [name for name in marked if bool((marked[name] & ~allowed[name]).any())]


@pytest.mark.parametrize("name", CASES)
def test_only_what_has_no_gradient_parts_from_torch(name: str, device: str) -> None:
    """From torch in float64: behind steps along the noise, torch in float32 on a GPU is farther from it than we are."""
    build = copies(moved(built(CASES[name], name), device))
    wanted, shares = torch_trained(built(CASES[name], name, dtype=torch.float64))
    noise = zeros_of(shares)
    assert any(bool(zero.any()) for zero in noise.values()), "every weight has a gradient"
    assert not outside(apart(ours_trained(build(), device), wanted, SAME), noise)


@pytest.mark.parametrize("name", CASES)
def test_torch_parts_from_itself_in_the_same_weights(name: str) -> None:
    single, _ = torch_trained(built(CASES[name], name))
    exact, shares = torch_trained(built(CASES[name], name, dtype=torch.float64))
    noise, parted = zeros_of(shares), apart(single, exact, SAME)
    assert not outside(parted, noise)
    assert any(bool(each.any()) for each in parted.values()), "float32 gives what float64 gives"


@pytest.mark.parametrize("name", CASES)
def test_double_precision_agrees(name: str) -> None:
    build = copies(built(CASES[name], name, dtype=torch.float64))
    wanted, shares = torch_trained(build())
    parted = apart(ours_trained(build(), "cpu"), wanted, 1e-9)
    assert not outside(parted, zeros_of(shares))


@pytest.mark.parametrize("name", CASES)
def test_gradient_descent_agrees_everywhere(name: str, device: str) -> None:
    build = copies(moved(built(CASES[name], name, descent), device))
    wanted, _ = torch_trained(build())
    parted = apart(ours_trained(build(), device), wanted, SAME)
    assert not outside(parted, nowhere(parted))


def test_no_gradient_is_zero_without_a_reason() -> None:
    _, shares = torch_trained(built(KEPT, "kept", dtype=torch.float64))
    assert not any(bool(zero.any()) for zero in zeros_of(shares).values())
