"""One file is enough: with `lion.py` among the optimizers, Lion goes from torch's param groups to one launch.

The kernel is C++; here its schema is pretended, and the interpreter takes the step. That needs a process of its own.
"""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import children
import torch

from aicf_mlir.ir import registry
from aicf_mlir.ir.registry import Attribute, Operand, Schema

FOLDER = Path(__file__).parent


class Lion(torch.optim.Optimizer):
    """The reference."""

    def __init__(self, params: Any, lr: float, betas: Any = (0.9, 0.99), weight_decay: float = 0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step of every parameter."""
        for group in self.param_groups:
            lr, (beta1, beta2), weight_decay = group["lr"], group["betas"], group["weight_decay"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                direction = (beta1 * m + (1 - beta1) * p.grad).sign()
                p.data = p.data * (1 - lr * weight_decay) - lr * direction
                self.state[p]["exp_avg"] = beta2 * m + (1 - beta2) * p.grad


class LionInTheFolder:
    """Finds the file as if it lay in `aicf_mlir/optimizers`."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """By its full name."""
        found = name == "aicf_mlir.optimizers.lion"
        return importlib.util.spec_from_file_location(name, FOLDER / "lion.py") if found else None


def pretend() -> None:
    """That the file is in the folder, and its kernel in the runtime."""
    listed = pkgutil.iter_modules

    def with_lion(path: Any = None, prefix: str = "") -> Iterator[Any]:
        yield from listed(path, prefix)
        if path and str(next(iter(path))).endswith("optimizers"):
            yield pkgutil.ModuleInfo(LionInTheFolder, "lion", False)  # pyright: ignore[reportArgumentType]

    pkgutil.iter_modules = with_lion
    sys.meta_path.insert(0, LionInTheFolder)  # pyright: ignore[reportArgumentType]
    inputs, outputs = (
        tuple(Operand(name, "many") for name in names.split())
        for names in ("p g m lr beta1 beta2 weight_decay", "p m")
    )
    groups = Attribute("groups", "list[int]", True, None, None)
    step = Schema(
        99, "LionStep", "lion_step", "Lion", "", False, inputs, outputs, (groups,), (("p", "p"), ("m", "m"))
    )
    known, check = {**registry.schemas(), "lion_step": step}, registry.check_op
    vars(registry)["schemas"] = lambda: known
    vars(registry)["check_op"] = lambda use: None if use.op == "lion_step" else check(use)  # pyright: ignore


def train() -> None:
    """A step of two param groups, in torch and by the interpreter of both levels."""
    from programs import run_by_name, run_pipeline

    from aicf_mlir import trace
    from aicf_mlir.frontend.group_values import hyperparameters
    from aicf_mlir.optimizers import KINDS

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).double()
    rows: list[Any] = [
        {"params": model[0].parameters()},
        {"params": model[2].parameters(), "lr": 0.5, "betas": (0.5, 0.75)},
    ]
    optimizer = Lion(rows, lr=0.25, weight_decay=0.125)
    batch = {"x": torch.randn(4, 8).double(), "t": torch.randn(4, 4).double()}
    module = trace(model, example=batch, optimizer=optimizer).module
    values: dict[str, Any] = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
    values |= {f"{name}.exp_avg": 0 * p.detach().numpy() for name, p in model.named_parameters()}
    values |= {name: tensor.numpy() for name, tensor in batch.items()}
    for k, group in enumerate(optimizer.param_groups):
        for name, number in hyperparameters(KINDS["lion"], group).items():
            values[f"{name}.{k}" if k else name] = number
    (model(batch["x"]) - batch["t"]).square().mean().backward()
    optimizer.step()
    for passes in ("autodiff,apply-optimizer", "autodiff,apply-optimizer,lower,fuse"):
        step = run_pipeline(module, passes)
        results = run_by_name(step, values)
        for name, p in model.named_parameters():
            torch.testing.assert_close(torch.from_numpy(results["update", name]), p.data)
            moment = torch.from_numpy(results["update", f"{name}.exp_avg"])
            torch.testing.assert_close(moment, optimizer.state[p]["exp_avg"])
        print(str(step).count("optim.lion"), str(step).count("kernel.lion_step"))


def test_one_file_is_enough() -> None:
    result = children.run([sys.executable, __file__], cwd=FOLDER)
    assert (result.stdout.split(), result.stderr) == (["4", "0", "0", "1"], "")


if __name__ == "__main__":
    pretend()
    train()
