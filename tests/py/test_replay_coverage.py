"""`replay(n)` leaves the bits of n steps, for each case of a folder that compiles.

`pytest tests/py/test_replay_coverage.py --coverage-dir FOLDER --coverage-device cuda -s` tries a folder whose `models.py`,
and `layers.py` where there is one, fill `CASES` of `models`: by name a group and a function that returns model, optimizer
factory, loss or None for the mean square error of `model(x)` against `t`, and batches. Without the option a folder of two
cases is made and tried.
"""

from __future__ import annotations

import copy
import importlib
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from replayed import Built, compiled, replay_differs, stepped

from aicf_mlir import AicfError

STEPS = 4

Build = Callable[[], tuple[Any, Callable[[Any], torch.optim.Optimizer], Any, list[dict[str, torch.Tensor]]]]

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
}
"""
NAMES = ("models", "layers")


@contextmanager
def cases_of(folder: Path) -> Generator[Mapping[str, tuple[str, Build]]]:
    """The table of a folder, whose modules have their names only meanwhile: some tests import a `models` of their own."""
    hidden = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    sys.path.insert(0, str(folder))
    try:
        for name in NAMES:
            if (folder / f"{name}.py").exists():
                importlib.import_module(name)
        yield sys.modules["models"].CASES
    finally:
        sys.path.remove(str(folder))
        for name in NAMES:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)


def mean_square(model: Any, batch: Any) -> torch.Tensor:
    """The loss of a case that names none."""
    return torch.nn.functional.mse_loss(model(batch["x"]), batch["t"])


def built(build: Build, device: str) -> Built:
    """A case on a device; a model that the folder keeps is copied."""
    torch.manual_seed(0)
    model, make_optimizer, loss, batches = build()
    model = copy.deepcopy(model).to(device)
    return model, make_optimizer(model), loss or mean_square, {k: v.to(device) for k, v in batches[0].items()}


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
    given, device = request.config.getoption("--coverage-dir"), request.config.getoption("--coverage-device")
    folder = Path(str(given)) if given else tmp_path
    if not given:
        (tmp_path / "models.py").write_text(EXAMPLE)
    with cases_of(folder) as cases, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = dict(tried(cases, str(device)))
    same, refused = list(found.values()).count([]), list(found.values()).count(None)
    print(f"{same} of {len(found)} replay the bits of their steps, {refused} are refused")
    assert not {name: differing for name, differing in found.items() if differing}
    assert same, "nothing was compiled"
    assert given or (same, refused) == (1, 1)


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
