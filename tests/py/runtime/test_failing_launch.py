"""A launch that fails says which it is: its symbol in the plan, its kernel id, the user's file and line, the layer of the model.

Faults are planted in the rows that the executor is given, as a wrong plan, a wrong registry or a broken machine would.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import children
import pytest
import torch
from models import mse, regression
from torch import nn

from aicf_mlir import _C
from aicf_mlir.errors import AicfError
from aicf_mlir.frontend import trace
from aicf_mlir.runtime.program import Program, load_program
from aicf_mlir.stages import run_stages
from aicf_mlir.text.parsing import make_context

if TYPE_CHECKING:
    from aicf_mlir._C import Launch


class Model(nn.Module):
    """Four layers: the launch of the last one is @k3."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        self.head = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)  # the line of the head


def program() -> Program:
    """A step with its launches as rows, each with the line and layer that it stands for."""
    model = Model()
    traced = trace(model, mse, regression(4), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    run_stages(traced.module, make_context())
    return load_program(traced.module)


def place(kernel: str = "gemm_epilogue_cpu_blas") -> str:
    """How a message names @k3, as a pattern."""
    lines = enumerate(linecache.getlines(__file__), 1)
    line = next(number for number, text in lines if text.rstrip().endswith("# the line of the head"))
    return rf"launch @k3 \(gemm_epilogue, kernel {kernel}; {re.escape(__file__)}:{line}, layer head: Linear\)"


def kernel(name: str) -> Callable[[Launch], None]:
    return lambda launch: launch.update(kernel_id=name)


def weight(offset: int, *shape: int) -> Callable[[Launch], None]:
    """Another place or shape for the operand `b`."""

    def edit(launch: Launch) -> None:
        x, place, bias = launch["inputs"]
        launch["inputs"] = [x, (place[0], offset, place[2], shape), bias]

    return edit


PREPARING: dict[str, tuple[Callable[[Launch], None], str, str]] = {
    "kernel of another op": (kernel("copy_cpu"), "copy_cpu", "kernel 'copy_cpu' runs copy"),
    "kernel of another device": (
        kernel("gemm_epilogue_f32_naive"),
        "gemm_epilogue_f32_naive",
        "runs on cuda",
    ),
    "another attribute": (
        lambda launch: launch.update(attrs={**launch["attrs"], "act": "softmax"}),
        "gemm_epilogue_cpu_blas",
        "attribute 'act': expected one of none, relu",
    ),
    "no such kernel": (kernel("gemm_fast"), "gemm_fast", "no kernel is called 'gemm_fast'"),
    "operand outside of its arena": (weight(1 << 20, 8, 8), "gemm_epilogue_cpu_blas", "arena"),
    "operand of another shape": (weight(0, 8, 7), "gemm_epilogue_cpu_blas", r"gemm_epilogue: .*8, 7"),
}
"""Faults that are found when the plan is made ready: the edit, the kernel id that is named, the reason."""


@pytest.mark.parametrize("fault", PREPARING)
def test_a_launch_that_cannot_be_prepared_is_named(fault: str) -> None:
    edit, kernel_id, reason = PREPARING[fault]
    step = program()
    arenas = {name: _C.Arena("cpu", size) for name, size in step.arenas.items()}
    _C.Executor("cpu", arenas, step.launches)  # the fault is the edit alone
    edit(step.launches[3])
    with pytest.raises(AicfError, match=rf"^{place(kernel_id)}.*{reason}"):
        _C.Executor("cpu", arenas, step.launches)


WITHOUT_BLAS = """
import sys, types
package = types.ModuleType("aicf_mlir")
package.__path__ = [FOLDERS]
sys.modules["aicf_mlir"] = package
from aicf_mlir import _C
arenas = {name: _C.Arena("cpu", size) for name, size in ARENAS.items()}
executor = _C.Executor("cpu", arenas, LAUNCHES)
try:
    executor.run()
except Exception as error:
    print(type(error).__name__, error)
print(executor.trace())
executor.capture()
try:
    executor.replay()
except Exception as error:
    print(type(error).__name__, error)
"""
"""A process that has the runtime but not the package around it, which loads the BLAS library when it is imported."""


def test_a_launch_that_fails_while_it_runs_is_named() -> None:
    """Three layers run on the plain kernel; that of the head needs a library that is not loaded."""
    step = program()
    for launch in step.launches[:3]:
        launch["kernel_id"] = "gemm_epilogue_cpu_plain"
    script = WITHOUT_BLAS.replace("FOLDERS", ", ".join(map(repr, folders())))
    script = script.replace("ARENAS", repr(step.arenas)).replace("LAUNCHES", repr(step.launches))
    done = children.run([sys.executable, "-c", script], check=True)
    failure, ran, of_replay = done.stdout.splitlines()
    for message in (failure, of_replay):
        assert re.match(rf"StateError {place()}: no BLAS library is loaded", message), message
    assert ran == str(["gemm_epilogue_cpu_plain"] * 3), "what ran before it is recorded"


def folders() -> list[str]:
    """Where the package lies: its Python files, and its compiled module."""
    import aicf_mlir

    return list(dict.fromkeys([*aicf_mlir.__path__, str(Path(_C.__file__).parent)]))
