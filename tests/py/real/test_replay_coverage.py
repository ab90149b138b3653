"""`replay(n)` leaves the bits of n steps, for each case of a folder that compiles.

`pytest tests/py/real/test_replay_coverage.py --coverage-dir FOLDER --coverage-device cuda -s` tries a folder (coverage_cases.py).
Without the option a folder of three cases is made and tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from coverage_cases import Build, built, cases_of, mean_square
from replayed import Built, compiled, replay_differs, stepped

from aicf_mlir import AicfError

STEPS = 4

EXAMPLE = """
import torch

CASES = {
    "a Linear": ("layers", lambda: (
        torch.nn.Linear(3, 2), lambda m: torch.optim.Adam(m.parameters()), None,
        [{"x": torch.randn(4, 3), "t": torch.randn(4, 2)}],
    )),
    "noise": ("layers", lambda: (
        torch.nn.Linear(3, 2), lambda m: torch.optim.SGD(m.parameters(), lr=0.1),
        lambda m, b: torch.nn.functional.dropout(m(b["x"])).sum(), [{"x": torch.randn(4, 3)}],
    )),
    "no op of ours": ("layers", lambda: (
        torch.nn.Linear(3, 2), lambda m: torch.optim.SGD(m.parameters(), lr=0.1),
        lambda m, b: torch.special.i1e(m(b["x"])).sum(), [{"x": torch.randn(4, 3)}],
    )),
}
"""


def tried(cases: Mapping[str, tuple[str, Build]], device: str) -> Iterator[tuple[str, list[str] | None]]:
    """By case: what differs between steps and a replay; None for what is refused."""
    for name, (_, build) in cases.items():
        try:
            case = built(build, device)
        except Exception as error:  # noqa: BLE001 - torch's own refusal of an optimizer or a layer
            print(f"{name}: torch: {error}")
            continue
        try:
            step = compiled(case, device)
            first, last, losses = stepped(step, case, STEPS)
            yield name, replay_differs(step, case, first, last, losses)
        except AicfError as error:
            print(f"{name}: refused: {str(error).splitlines()[0]}")
            yield name, None


def test_a_replay_leaves_the_bits_of_its_steps(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with cases_of(request, tmp_path, EXAMPLE) as (cases, device):
        found = dict(tried(cases, device))
    same, refused = list(found.values()).count([]), list(found.values()).count(None)
    print(f"{same} of {len(found)} replay the bits of their steps, {refused} are refused")
    assert not {name: differing for name, differing in found.items() if differing}
    assert same, "nothing was compiled"
    assert request.config.getoption("--coverage-dir") or (same, refused) == (2, 1)


def test_a_difference_is_found() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    batch = {"x": torch.randn(4, 3), "t": torch.randn(4, 2)}
    case: Built = (model, torch.optim.Adam(model.parameters()), mean_square, batch)
    step = compiled(case, "cpu")
    first, last, losses = stepped(step, case, STEPS)
    for wrong, names in (
        ((last, losses), []),
        (({**last, "bias": last["bias"] * 2}, losses), ["bias"]),
        ((last, [*losses[:-1], -losses[-1]]), ["the loss"]),
    ):
        assert replay_differs(step, case, first, *wrong) == names
        step.reset()
        step.train_step(batch)
