"""What is said where a GPU is asked for and cannot be used: which part is missing, and no more than that."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tool_calls import called
from torch import nn

from aicf_mlir import _C, BindError, compile_train_step
from aicf_mlir.machine import hardware
from aicf_mlir.runtime import devices
from aicf_mlir.tools import aicf_check, aicf_run

ROOT = Path(__file__).parents[3]
DRIVER = object()


@pytest.mark.parametrize(
    ("built", "driver", "count", "torch_cuda", "why"),
    [
        (False, None, 0, None, "this build of AICF has no CUDA"),
        (True, None, 0, None, "this machine has no NVIDIA driver"),
        (True, DRIVER, 0, None, "the NVIDIA driver of this machine shows no GPU that AICF can use"),
        (True, DRIVER, 1, None, f"torch {torch.__version__} was built without CUDA"),
        (True, DRIVER, 1, "13.0", f"torch {torch.__version__} finds no GPU that it can use"),
    ],
)
def test_a_step_says_which_part_is_missing(
    monkeypatch: pytest.MonkeyPatch,
    built: bool,
    driver: object,
    count: int,
    torch_cuda: str | None,
    why: str,
) -> None:
    monkeypatch.setattr(_C, "with_cuda", built)
    monkeypatch.setattr(_C, "device_count", lambda kind: count)
    monkeypatch.setattr(hardware, "_cuda", lambda: driver)
    monkeypatch.setattr(torch.version, "cuda", torch_cuda)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(BindError) as refused:
        compile_train_step(model, optimizer, B=2, D=4, device="cuda")
    assert str(refused.value) == f"device 'cuda': {why}; use device='cpu'"
    assert str(devices.default_device()) == "cpu"


def test_tools_say_it_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_C, "with_cuda", True)
    monkeypatch.setattr(_C, "device_count", lambda kind: 0)
    monkeypatch.setattr(hardware, "_cuda", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    why = "this machine has no NVIDIA driver"
    step = f"{ROOT / 'examples' / 'mlp.py'}:mlp"
    expected = f"aicf-check: error: device 'cuda': {why}; use device='cpu'\n"
    assert called(aicf_check.main, [step, "--device", "cuda"], capsys) == (1, "", expected)
    code, out, err = called(aicf_run.main, [str(ROOT / "examples" / "mlp.mlir"), "--device", "cuda"], capsys)
    assert (code, out) == (1, "") and err.endswith(f"error: --device cuda: {why}\n")
