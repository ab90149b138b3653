"""docs/frameworks.md: each block runs, with its own assertions, and what it has compiled is then judged as any model is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from tests.real.case import Batch, Make, Work

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
BLOCK = re.compile(r"^## (.*?)\n.*?^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def ran(block: str) -> dict[str, Any]:
    """What is there after a block of the page has run: on the CPU, as the page says."""
    namespace: dict[str, Any] = {}
    with torch.device("cpu"):
        exec(compile(block, str(PAGE), "exec"), namespace)
    return namespace


def rows() -> Batch:
    return {"x": torch.randn(8, 4), "t": torch.randn(8, 2)}


def loss(net: Any, batch: Batch) -> torch.Tensor:
    return F.mse_loss(net(batch["x"]), batch["t"])


def accelerate(block: str) -> Work:
    found = ran(block)
    found["step"].close()
    net, adamw = found["net"].to(torch.get_default_device()), found["adamw"]
    adamw.load_state_dict(adamw.state_dict())  # its state goes to where the parameters are
    return Work(net, rows, (adamw,), loss=loss)


def lightning(block: str) -> Work:
    module = ran(block)["module"]
    module.step.close()
    module.net.to(torch.get_default_device())
    return Work(module.net, rows, (torch.optim.AdamW(module.net.parameters(), lr=1e-2),), loss=loss)


def trainer(block: str) -> Work:
    found = ran(block)
    found["step"].close()
    ours = found["trainer"]
    return Work(
        ours.model.to(torch.get_default_device()),
        lambda: {"input_ids": torch.randint(32, (4, 8)), "labels": torch.randint(32, (4, 8))},
        (torch.optim.AdamW(ours.model.parameters(), lr=1e-3),),
        loss=lambda model, batch: ours.compute_loss(model, dict(batch)),
    )


MAKES = {"accelerate": accelerate, "Lightning": lightning, "HF Trainer": trainer}
CASES: dict[str, Make] = {
    name: lambda make=MAKES[name], block=block: make(block) for name, block in BLOCK.findall(PAGE.read_text())
}
