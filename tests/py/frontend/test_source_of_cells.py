"""Code without a file: cells of a notebook, standard input, exec. Errors carry its name and line."""

from __future__ import annotations

import linecache
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import children
import pytest
import torch

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import source, trace

CELL = """\
import torch
from torch import nn
from dataclasses import dataclass

@dataclass
class Settings:
    scale: float = 2.0

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x) * Settings().scale
        return torch.erfinv(y)

def loss_fn(model, batch):
    return (model(batch["x"]) * batch["x"].sum().item()).mean()

squared = lambda model, batch: torch.erfinv(model.layer(batch["x"])).mean()
"""
NAMES = [
    "<ipython-input-3-abcdef>",
    f"{tempfile.gettempdir()}/ipykernel_4711/1234567.py",
    "<stdin>",
    "<string>",
    "<python-input-0>",
    "<doctest module[0]>",
    "<my generated model>",
]


@pytest.fixture(params=NAMES)
def cell(request: pytest.FixtureRequest) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name of a cell that linecache knows, as IPython tells it, and what the cell defines."""
    name: str = request.param
    linecache.cache[name] = (len(CELL), None, CELL.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(CELL, name, "exec"), namespace)
    yield name, namespace
    del linecache.cache[name]


BATCH = {"x": torch.zeros(2, 4), "t": torch.zeros(2, 4)}


def message_of(model: Any, loss_fn: Any = None) -> str:
    with pytest.raises(TraceError) as caught:
        trace(model, loss_fn, BATCH)
    return str(caught.value)


def test_the_model_of_a_cell(cell: tuple[str, dict[str, Any]]) -> None:
    name, defined = cell
    message = message_of(defined["Net"]())
    assert message.startswith(
        f"{name}:16: aten.erfinv.default(float32[2, 4]) is not supported (`return torch.erfinv(y)`)"
    )


def test_the_loss_of_a_cell(cell: tuple[str, dict[str, Any]]) -> None:
    name, defined = cell
    message = message_of(defined["Net"](), defined["loss_fn"])
    assert message.startswith(f"{name}:19: the step reads the value of a tensor (`return (model(")


def test_a_lambda_of_a_cell(cell: tuple[str, dict[str, Any]]) -> None:
    name, defined = cell
    assert message_of(defined["Net"](), defined["squared"]).startswith(f"{name}:21: aten.erfinv")


def test_ops_carry_the_line_of_the_cell(cell: tuple[str, dict[str, Any]]) -> None:
    name, defined = cell
    defined["torch"].erfinv, kept = torch.tanh, torch.erfinv
    try:
        traced = trace(defined["Net"](), None, BATCH)
    finally:
        defined["torch"].erfinv = kept
    lines = {str(op.location) for op in traced.module.walk() if op.name in ("nn.linear", "nn.tanh")}
    assert lines == {
        f'loc("layer: Linear"("{name}":15:1))',
        f'loc("Net"("{name}":16:1))',
    }


@pytest.mark.parametrize(
    "name",
    ["<frozen importlib._bootstrap>", "<eval_with_key>.3", "<__array_function__ internals>", torch.__file__],
)
def test_generated_code_is_not_the_users(name: str) -> None:
    assert not source.is_users_file(name)


def test_generated_methods_and_libraries_are_passed_over() -> None:
    namespace: dict[str, Any] = {"__name__": "torch.generated", "here": source.here}
    exec(compile("def call(): return here()", "<string>", "exec"), namespace)
    location = namespace["call"]()
    assert location is not None
    assert location.file == __file__
    namespace["__name__"] = "__main__"
    assert str(namespace["call"]()) == "<string>:1"
    code = "from dataclasses import dataclass, field\n@dataclass\nclass A:\n    x: object = field(default_factory=here)"
    exec(compile(code, "<cell>", "exec"), namespace)
    assert namespace["A"]().x.file == __file__


def test_standard_input() -> None:
    script = f"""{CELL}
from aicf_mlir.frontend import trace
try:
    trace(Net(), None, {{"x": torch.zeros(2, 4), "t": torch.zeros(2, 4)}})
except Exception as error:
    print(error)
"""
    done = children.run([sys.executable, "-"], input=script, check=True)
    assert done.stdout.startswith("<stdin>:16: aten.erfinv.default(float32[2, 4]) is not supported"), (
        done.stdout
    )
