"""docs/support.md says what of torch.nn and torch.optim trains, and what does not."""

from __future__ import annotations

import inspect
import re

import pytest
import torch
from support_page import PAGE, TEXT, render
from torch_layers import CONTAINERS, LAYERS, LOSSES, ON_SEVERAL_DEVICES, OPTIMIZERS

DEPRECATED = ("NLLLoss2d",)


def subclasses(module: object, base: type) -> set[str]:
    """The names of the classes in `module` that derive from `base`."""
    return {n for n, cls in vars(module).items() if inspect.isclass(cls) and issubclass(cls, base)}


@pytest.mark.usual
@pytest.mark.filterwarnings("ignore")  # of torch, about its own layers
def test_the_page_is_what_the_compiler_does(pytestconfig: pytest.Config) -> None:
    """Of its layers and losses every twelfth in a usual run."""
    tried = render(every=1 if pytestconfig.getoption("campaign") else 12)
    assert PAGE.read_text() == tried, "run python tests/py/tools/support_page.py"


def test_no_class_of_torch_is_left_out() -> None:
    layers = {name for name in subclasses(torch.nn, torch.nn.Module) if not name.startswith("Lazy")}
    tried = {name for name in (*LAYERS, *LOSSES) if name.isidentifier()}
    assert layers == {*tried, *CONTAINERS, *ON_SEVERAL_DEVICES, *DEPRECATED}
    assert subclasses(torch.optim, torch.optim.Optimizer) | {"Lion"} == {*OPTIMIZERS, "Optimizer"}


def test_the_page_has_a_place_for_each_table() -> None:
    assert len(re.findall(r"\{\w+\}", TEXT)) == 8


def test_the_page_stays_short() -> None:
    assert len(PAGE.read_text().splitlines()) < 300
