"""`aicf-trace` and the convention of FILE.py:FUNCTION."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aicf_mlir.errors import TraceError
from aicf_mlir.ir.diagnostics import Source
from aicf_mlir.ir.printing import to_text
from aicf_mlir.ir.verify import verify_module
from aicf_mlir.text.parsing import make_context, parse_source
from aicf_mlir.tools.aicf_trace import main, trace_to_text
from aicf_mlir.tools.user_function import load_user_step

EXAMPLE = str(Path(__file__).parents[3] / "examples" / "mlp.py")


@pytest.mark.parametrize("name", ["mlp", "classifier"])
def test_examples(name: str) -> None:
    text = trace_to_text(f"{EXAMPLE}:{name}", name)
    module = parse_source(make_context(), Source("<text>", text)).module
    verify_module(module)
    assert to_text(module) + "\n" == text
    assert f"func.func @{name}(" in text
    assert "aicf.optimizer" in text


def test_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "model.mlir"
    assert main([f"{EXAMPLE}:mlp", "-o", str(target)]) == 0
    assert capsys.readouterr() == ("", "")
    assert main([f"{EXAMPLE}:mlp"]) == 0
    assert capsys.readouterr() == (target.read_text(), "")


def test_locations() -> None:
    assert re.search(
        r'nn\.linear [^=]* loc\(".*mlp\.py":\d+:1\)', trace_to_text(f"{EXAMPLE}:mlp", locations=True)
    )


HEADER = """\
import torch
from torch import nn
x = {"x": torch.zeros(2, 4), "t": torch.zeros(2, 4)}
"""

FILES: dict[str, tuple[str, str]] = {
    "syntax": ("def step(:\n", r"user\.py:1: SyntaxError"),
    "import": (
        "import no_such_module\n",
        r"user\.py:1: ModuleNotFoundError: No module named 'no_such_module'",
    ),
    "exit": ("import sys\nsys.exit(3)\n", r"user\.py:2: SystemExit: 3"),
    "missing": ("def other(): pass\n", r"user\.py: there is no function 'step'; there are other"),
    "no function": ("step = 3\n", r"there is no function 'step'; there are none"),
    "arguments": ("def step(x): pass\n", r"user\.py:1: step\(\) must take no arguments"),
    "raises": ("def step():\n    1 / 0\n", r"user\.py:2: ZeroDivisionError: division by zero"),
    "tuple": (
        "def step():\n    return 1, 2\n",
        r"user\.py:1: step\(\) returned tuple; it must return a dictionary",
    ),
    "entries": ("def step():\n    return {'net': 1}\n", r"unknown entries net; it must return"),
    "model": ("def step():\n    return {'batch': {}}\n", r"must return a Module as 'model', got nothing"),
    "batch": (
        HEADER + "def step():\n    return {'model': nn.ReLU()}\n",
        r"must return a Mapping, a tuple or a list as 'batch'",
    ),
    "optimizer": (
        HEADER + "def step():\n    return {'model': nn.ReLU(), 'batch': x, 'optimizer': 1}\n",
        r"user\.py:4: step\(\) must return a torch optimizer as 'optimizer', got int",
    ),
    "op": (
        HEADER
        + "class Net(nn.Module):\n    def forward(self, x):\n        return x.erfinv()\n"
        + "def step():\n    return {'model': Net(), 'batch': x}\n",
        r"user\.py:6: aten\.erfinv\.default\(float32\[2, 4\]\) is not supported \(`return x\.erfinv\(\)`\)",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_errors_name_the_users_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, pattern = FILES[name]
    (tmp_path / "user.py").write_text(text)
    assert main([f"{tmp_path / 'user.py'}:step"]) == 1
    output, error = capsys.readouterr()
    assert output == ""
    assert re.fullmatch(rf"aicf-trace: error: .*{pattern}.*\n", error), error


@pytest.mark.parametrize("argument", ["model.py", "model.txt:step", "model.py:", "model.py:a-b", ":step"])
def test_malformed_argument(argument: str) -> None:
    with pytest.raises(TraceError, match=r"expected FILE\.py:FUNCTION, got"):
        load_user_step(argument)


def test_missing_file() -> None:
    with pytest.raises(TraceError, match=r"nowhere\.py: there is no such file"):
        load_user_step("nowhere.py:step")


def test_a_file_sees_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "beside_the_model.py").write_text("WIDTH = 4\n")
    (tmp_path / "user.py").write_text(
        "import torch\nfrom beside_the_model import WIDTH\n"
        "def step(width=WIDTH):\n"
        "    batch = {'x': torch.zeros(3, width), 't': torch.zeros(3, 2)}\n"
        "    return {'model': torch.nn.Linear(width, 2), 'batch': batch}\n"
    )
    user = load_user_step(f"{tmp_path / 'user.py'}:step")
    assert (user.optimizer, user.loss_fn, user.location.line) == (None, None, 3)
    assert isinstance(user.batch, dict)
    assert user.batch["x"].shape == (3, 4)
