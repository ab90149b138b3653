"""Each case of a folder trains as torch does, or no farther from it than torch is carried by its own rounding.

`pytest tests/py/real/test_coverage.py --coverage-dir FOLDER --coverage-device cuda -s` tries a folder (coverage_cases.py);
without the option one is made and tried. Where Adam divides a gradient that is zero but for rounding by its own size, torch is no
measure: there each element may differ by a few times what it differs by in runs of torch with disturbed gradients.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from coverage_cases import Build, built, cases_of
from replayed import Built, Held, compiled, state

from aicf_mlir import AicfError

STEPS = 5
SAME, SAME_IN_HALF = 3e-4, 2e-2
"""Of a loss, or of the largest element of a tensor."""
DISTURBED = 8
"""Runs of torch that tell how far rounding carries an element."""
TIMES = 4.0
"""As far as the farthest of them, at most."""

EXAMPLE = """
import torch
from torch.nn import BatchNorm1d, Linear, Sequential

def adam(model):
    return torch.optim.Adam(model.parameters())

def batch():
    return [{"x": torch.randn(4, 3), "t": torch.randn(4, 2)}]

CASES = {
    "a Linear": ("layers", lambda: (Linear(3, 2), adam, None, batch())),
    "a bias before a norm": ("layers", lambda: (Sequential(Linear(3, 2), BatchNorm1d(2)), adam, None, batch())),
    "noise": ("layers", lambda: (
        Linear(3, 2), adam, lambda m, b: torch.nn.functional.dropout(m(b["x"])).square().sum(), batch(),
    )),
    "no op of ours": ("layers", lambda: (
        Linear(3, 2), adam, lambda m, b: torch.special.i1e(m(b["x"])).sum(), batch(),
    )),
}
"""
AGREES, NO_MEASURE, RANDOM, REFUSED = (
    "agree with torch",
    "are where torch is none",
    "are random",
    "are refused",
)


def copy_of(case: Built) -> Built:
    """The same weights and batch, apart from the case."""
    return *copy.deepcopy(case[:2]), *case[2:]


def in_torch(case: Built, seed: int | None = None, torch_seed: int = 0) -> Held:
    """What some steps of torch leave, and their losses; with a seed, of disturbed gradients."""
    torch.manual_seed(torch_seed)
    model, optimizer, loss_of, batch = copy_of(case)
    generator = torch.Generator().manual_seed(seed or 0)
    losses: Held = {}
    for i in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        if seed is not None:
            disturb([each.grad for each in model.parameters() if each.grad is not None], generator)
        optimizer.step()
        losses[f"loss {i}"] = loss.detach()
    return {**state((model, optimizer, loss_of, batch)), **losses}


def disturb(gradients: list[torch.Tensor], generator: torch.Generator) -> None:
    """Add or take away a unit in the last place of the largest gradient, as another order of sums does where terms cancel."""
    largest = max(float(gradient.abs().max()) for gradient in gradients)
    for gradient in gradients:
        sign = torch.randint(2, gradient.shape, generator=generator) * 2.0 - 1.0
        gradient.add_(sign.to(gradient.device) * (torch.finfo(gradient.dtype).eps * largest))


def computes_in_half(case: Built) -> bool:
    """Whether backward is left anything of 16 bits: parameters, or what an autocast makes."""
    found: list[torch.dtype] = []

    def look(saved: torch.Tensor) -> torch.Tensor:
        found.append(saved.dtype)
        return saved

    model, _, loss_of, batch = copy_of(case)
    with torch.autograd.graph.saved_tensors_hooks(look, lambda saved: saved):
        loss_of(model, batch)
    return not {torch.float16, torch.bfloat16}.isdisjoint(found)


def compiled_steps(case: Built, device: str) -> Held:
    """What a compiled step leaves, the last one replayed, and the losses."""
    step, batch = compiled(case, device), case[3]
    losses = {f"loss {i}": step.train_step(batch).clone() for i in range(STEPS - 1)}
    step.capture(batch)
    losses[f"loss {STEPS - 1}"] = step.replay().clone()
    return {**state(case), **losses}


def compared(wanted: Held) -> Iterator[tuple[str, torch.Tensor, float]]:
    """Tensors but moments that have numbers, and how large their elements are."""
    for name, value in wanted.items():
        if " of " not in name and value.numel() and value.is_floating_point():
            finite = value[value.isfinite()]  # where torch overflows, there is nothing to compare
            if finite.numel():
                yield name, value.double(), float(finite.abs().max()) + 1e-6


def farthest(found: Held, wanted: Held, allowed: Held) -> float:
    """The most by which any element differs beyond what it may, relative to the largest of its tensor."""
    most = 0.0
    for name, value, largest in compared(wanted):
        apart = (found[name].double() - value).abs() - allowed.get(name, 0.0)
        worst = float(apart[value.isfinite()].max()) / largest
        most = max(most, worst if worst == worst else float("inf"))
    return most


def carried(case: Built, wanted: Held) -> Held:
    """By name: how far rounding may carry each element."""
    runs = [in_torch(case, seed) for seed in range(DISTURBED)]
    return {
        name: TIMES * torch.stack([(run[name].double() - value).abs() for run in runs]).amax(0)
        for name, value, _ in compared(wanted)
    }


def verdict(build: Build, device: str) -> str | None:
    """How a case does; None where torch refuses it."""
    case = built(build, device)
    try:
        wanted, again, other = (in_torch(case, torch_seed=seed) for seed in (0, 0, 1))
    except Exception:  # noqa: BLE001 - whatever torch says of an optimizer or a layer
        return None
    try:
        found = compiled_steps(copy_of(case), device)
    except AicfError:
        return REFUSED
    if farthest(other, wanted, {}) > SAME >= farthest(again, wanted, {}):
        return RANDOM if farthest(found, wanted, {}) < float("inf") else "is not finite"
    same = SAME_IN_HALF if computes_in_half(case) else SAME
    apart = farthest(found, wanted, {})
    if apart <= same:
        return AGREES
    beyond = farthest(found, wanted, carried(case, wanted))
    return (
        NO_MEASURE if beyond <= same else f"{apart:.1e} from torch, {beyond:.1e} more than rounding explains"
    )


def verdicts(cases: Mapping[str, tuple[str, Build]], device: str) -> Iterator[tuple[str, str]]:
    """By name."""
    for name, (_, build) in cases.items():
        if (found := verdict(build, device)) is not None:
            yield name, found


def test_trains_as_torch(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    with cases_of(request, tmp_path, EXAMPLE) as (cases, device):
        found = dict(verdicts(cases, device))
    known = (AGREES, NO_MEASURE, RANDOM, REFUSED)
    count = Counter(found.values())
    print(f"of {len(found)} cases " + ", ".join(f"{count[each]} {each}" for each in known))
    print(*(f"  {name}" for name in found if found[name] == NO_MEASURE), sep="\n")
    assert not {name: each for name, each in found.items() if each not in known}
    assert request.config.getoption("--coverage-dir") or [count[each] for each in known] == [1, 1, 1, 1]
