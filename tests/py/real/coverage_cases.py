"""Folders of models that others keep: `models.py`, and `layers.py` where there is one, fill `CASES` of `models`.

`CASES` has by name a group and a function that returns model, optimizer factory, loss or None for the mean square error of
`model(x)` against `t`, and batches.
"""

from __future__ import annotations

import copy
import importlib
import sys
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from replayed import Built

Build = Callable[[], tuple[Any, Callable[[Any], torch.optim.Optimizer], Any, list[dict[str, torch.Tensor]]]]
NAMES = ("models", "layers")


@contextmanager
def cases_of(
    request: pytest.FixtureRequest, made: Path, example: str
) -> Generator[tuple[Mapping[str, tuple[str, Build]], str]]:
    """
    The table of the folder of `--coverage-dir`, without it that of `example`, written to the folder `made`; and the device.

    The modules have their names only meanwhile: some tests import a `models` of their own.
    """
    given, device = request.config.getoption("--coverage-dir"), request.config.getoption("--coverage-device")
    folder = Path(str(given)) if given else made
    if not given:
        (made / "models.py").write_text(example)
    hidden = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    sys.path.insert(0, str(folder))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in NAMES:
                if (folder / f"{name}.py").exists():
                    importlib.import_module(name)
            yield sys.modules["models"].CASES, str(device)
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
