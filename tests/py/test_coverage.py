"""Each case of a folder trains as torch does, or no farther from it than torch in float64 is from torch in float32.

`pytest tests/py/test_coverage.py --coverage-dir FOLDER --coverage-device cuda -s` tries a folder (coverage_cases.py); without
the option one is made and tried. Where Adam divides rounding noise by its own size, or a library multiplies in TF32, torch's
float32 is no measure; what we may differ by there is a few times what torch itself differs by.
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
TIMES = 4.0
"""As far from torch in float32 as torch in float64 is, at most."""

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
    "no optimizer of ours": ("layers", lambda: (
        Linear(3, 2), lambda m: torch.optim.Rprop(m.parameters()), None, batch(),
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


def in_torch(case: Built) -> Held:
    """What some steps of torch leave, and their losses."""
    model, optimizer, loss_of, batch = copy_of(case)
    losses: Held = {}
    for i in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        losses[f"loss {i}"] = loss.detach()
    return {**state((model, optimizer, loss_of, batch)), **losses}


def in_double(case: Built) -> Held | None:
    """The same in float64; None where the case fixes a type."""
    model, optimizer, loss_of, batch = copy_of(case)
    wide = {name: value.double() if value.is_floating_point() else value for name, value in batch.items()}
    try:
        return in_torch((model.double(), optimizer, loss_of, wide))
    except RuntimeError:
        return None


def compiled_steps(case: Built, device: str) -> Held:
    """What a compiled step leaves, the last one replayed, and the losses."""
    step, batch = compiled(case, device), case[3]
    losses = {f"loss {i}": step.train_step(batch).clone() for i in range(STEPS - 1)}
    step.capture(batch)
    losses[f"loss {STEPS - 1}"] = step.replay().clone()
    return {**state(case), **losses}


def departure(found: Held, wanted: Held) -> float:
    """The largest difference of any tensor but moments, relative to its largest element; where torch overflows there is none."""
    farthest = 0.0
    for name, value in wanted.items():
        if " of " in name or not value.numel() or not value.is_floating_point():
            continue
        ours, value = found[name].detach().double(), value.detach().double()
        finite = value.isfinite()
        if bool(finite.any()):
            largest = float(value[finite].abs().max()) + 1e-6
            apart = float((ours - value)[finite].abs().max()) / largest
            farthest = max(farthest, apart if apart == apart else float("inf"))
    return farthest


def verdict(build: Build, device: str) -> str | None:
    """How a case does; None where torch refuses it."""
    case = built(build, device)
    try:
        wanted = in_torch(case)
    except Exception:  # noqa: BLE001 - whatever torch says of an optimizer or a layer
        return None
    half = any(p.dtype in (torch.float16, torch.bfloat16) for p in case[0].parameters())
    try:
        apart = departure(compiled_steps(copy_of(case), device), wanted)
    except AicfError:
        return REFUSED
    if apart <= (SAME_IN_HALF if half else SAME):
        return AGREES
    exact = in_double(case)
    allowed = 0.0 if exact is None else TIMES * departure(exact, wanted)
    return (
        NO_MEASURE
        if apart <= allowed
        else f"{apart:.1e} from torch, which is {allowed / TIMES:.1e} from itself"
    )


def verdicts(cases: Mapping[str, tuple[str, Build]], device: str) -> Iterator[tuple[str, str]]:
    """By name."""
    for name, (_, build) in cases.items():
        if (found := verdict(build, device)) is not None:
            yield name, found


def test_trains_as_torch(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with cases_of(request, tmp_path, EXAMPLE) as (cases, device):
        found = dict(verdicts(cases, device))
    known = (AGREES, NO_MEASURE, REFUSED)
    count = Counter(found.values())
    print(f"of {len(found)} cases " + ", ".join(f"{count[each]} {each}" for each in known))
    print(*(f"  {name}" for name in found if found[name] == NO_MEASURE), sep="\n")
    assert not {name: each for name, each in found.items() if each not in known}
    assert request.config.getoption("--coverage-dir") or [count[each] for each in known] == [1, 1, 2]
