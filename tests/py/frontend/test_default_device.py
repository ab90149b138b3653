"""`torch.set_default_device` is the user's: what AICF makes for itself names its device."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import torch
from torch.utils import _device

import aicf_mlir
from aicf_mlir import compile_train_step

MAKERS = frozenset(maker.__name__ for maker in _device._device_constructors())  # pyright: ignore[reportPrivateUsage]


def unnamed(text: str) -> list[int]:
    """The lines whose calls of torch make a tensor on the default device."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return [
        call.lineno
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and ast.unparse(call.func.value) == "torch"
        and call.func.attr in MAKERS - {"as_tensor"}  # of a tensor, it is that tensor
        and not {"device", "pin_memory"} & {keyword.arg for keyword in call.keywords}
    ]


def test_each_tensor_names_its_device() -> None:
    package = Path(aicf_mlir.__file__).parent
    files = {path.relative_to(package): unnamed(path.read_text("utf-8")) for path in package.rglob("*.py")}
    assert len(files) > 200
    assert not {path: lines for path, lines in files.items() if lines}


def test_a_planted_tensor_is_found() -> None:
    assert unnamed("import torch\nx = torch.zeros(3)\ny = torch.zeros(3, device=x.device)") == [2]


class Model(torch.nn.Module):
    """Indices, windows, a draw and bags: what the trace makes constants for."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.EmbeddingBag(8, 4, mode="mean")
        self.mix = torch.nn.Conv1d(4, 4, 3, padding=1)
        self.drop = torch.nn.Dropout(0.25)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """The loss of words [B, L] and classes [B]."""
        seen = self.drop(self.mix(self.words(x).unsqueeze(-1).expand(-1, -1, 5)))
        seen = torch.nn.functional.adaptive_avg_pool1d(seen, 3).amax(-1).cumsum(-1)
        return torch.nn.functional.cross_entropy(seen.sort(-1).values, t)


def test_a_step_beside_another_default_device() -> None:
    """Nothing can be read from a tensor on "meta", so none of ours may be made there."""
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    batch = {"x": torch.randint(8, (6, 3)), "t": torch.randint(4, (6,))}
    torch.set_default_device("meta")
    try:
        step = compile_train_step(
            model, optimizer, loss_fn=lambda m, b: m(**b), example=batch, seed=3, clip_grad_norm=1.0
        )
        losses = [step.train_step(batch).item() for _ in range(3)]
        checked = step.check(batch)
    finally:
        torch.set_default_device(None)
    assert checked and all(math.isfinite(loss) for loss in losses)
