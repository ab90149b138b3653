"""Modules that a step imports stay as their code has left them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from aicf_mlir import GuardError, compile_train_step

PACKAGE = """
KINDS = []
NAMES = {}

def __getattr__(name):
    if name == "late":
        import late_package.late as late
        return late
    raise AttributeError(name)
"""

LATE = """
import late_package
from . import later

late_package.KINDS.append("late")
late_package.NAMES["late"] = __name__
SCALE = 2.0
"""

LATER = "BIAS = 0.5"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A package whose modules are loaded when they are first used."""
    folder = tmp_path / "late_package"
    folder.mkdir()
    for name, text in {"__init__": PACKAGE, "late": LATE, "later": LATER}.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield import_module("late_package")
    for name in [name for name in sys.modules if name.startswith("late_package")]:
        del sys.modules[name]


@pytest.mark.parametrize("how", ["attribute", "statement"])
def test_a_module_that_a_step_imports_stays_whole(package: Any, how: str) -> None:
    def module() -> Any:
        return package.late if how == "attribute" else import_module("late_package.late")

    def loss(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return model(batch["x"]).sum() * module().SCALE + module().later.BIAS

    model, batch = torch.nn.Linear(3, 2), {"x": torch.randn(4, 3)}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = compile_train_step(model, optimizer, loss_fn=loss, example=batch, device="cpu")
    late = sys.modules["late_package.late"]
    assert package.late is late and package.late.later.BIAS == 0.5
    assert package.KINDS == ["late"] and package.NAMES == {"late": "late_package.late"}
    expected = loss(model, batch).detach()
    torch.testing.assert_close(step.train_step(batch), expected)
    vars(late)["SCALE"] = 3.0
    with pytest.raises(GuardError, match="SCALE"):
        step.train_step(batch)


def test_a_step_that_imports_twice_as_torch_does(package: Any) -> None:
    """The module is loaded by the first call, which the second one must not undo."""
    model, batch = torch.nn.Linear(3, 2), {"x": torch.randn(4, 3)}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        scale = package.late.SCALE if "late" in vars(package) else 2.0
        return model(batch["x"]).sum() * scale * package.late.later.BIAS

    step = compile_train_step(model, optimizer, loss_fn=loss, example=batch, device="cpu")
    expected = loss(model, batch).detach()
    torch.testing.assert_close(step.train_step(batch), expected)
