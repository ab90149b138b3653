"""One file is enough: with `signum.py` among the optimizers, Signum goes from torch's param groups to a replayed step.

That needs a process of its own.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import children
import torch

FOLDER = Path(__file__).parent
STEPS = 20


class Signum(torch.optim.Optimizer):
    """The reference."""

    def __init__(self, params: Any, lr: float, momentum: float = 0.9, weight_decay: float = 0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step of every parameter."""
        for group in self.param_groups:
            lr, momentum, weight_decay = group["lr"], group["momentum"], group["weight_decay"]
            for p in group["params"]:
                state = self.state[p]
                average = state.setdefault("average", torch.zeros_like(p))
                largest = state.setdefault("largest", torch.zeros_like(p))
                average.mul_(momentum).add_((1 - momentum) * p.grad)
                largest.copy_(torch.maximum(largest, p.grad.abs()))
                p.mul_(1 - lr * weight_decay).sub_(lr * average.sign())


class SignumInTheFolder:
    """Finds the file as if it lay in `aicf_mlir/optimizers`."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """By its full name."""
        found = name == "aicf_mlir.optimizers.signum"
        return importlib.util.spec_from_file_location(name, FOLDER / "signum.py") if found else None


def pretend() -> None:
    """That the file is in the folder."""
    listed = pkgutil.iter_modules

    def with_signum(path: Any = None, prefix: str = "") -> Iterator[Any]:
        yield from listed(path, prefix)
        if path and str(next(iter(path))).endswith("optimizers"):
            yield pkgutil.ModuleInfo(SignumInTheFolder, "signum", False)  # pyright: ignore[reportArgumentType]

    pkgutil.iter_modules = with_signum
    sys.meta_path.insert(0, SignumInTheFolder)  # pyright: ignore[reportArgumentType]


def train(device: str) -> None:
    """Steps of two param groups beside the reference, the second half of them replayed, with another lr in between."""
    from aicf_mlir import compile_train_step

    torch.manual_seed(0)
    ours = (
        torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
        .double()
        .to(device)
    )
    theirs = copy.deepcopy(ours)
    batch = {name: torch.randn(4, size).double().to(device) for name, size in (("x", 8), ("t", 4))}
    optimizers = [
        Signum(
            [
                {"params": model[0].parameters()},
                {"params": model[2].parameters(), "lr": 0.01, "momentum": 0.5},
            ],
            lr=0.02,
            weight_decay=0.125,
        )
        for model in (ours, theirs)
    ]

    def loss_of(model: Any, batch: Any) -> torch.Tensor:
        return (model(batch["x"]) - batch["t"]).square().mean()

    step = compile_train_step(ours, optimizers[0], loss_fn=loss_of, example=batch, device=device)
    for i in range(STEPS):
        if i == STEPS // 2:
            step.capture(batch)
            for optimizer in optimizers:
                optimizer.param_groups[0]["lr"] = 0.005
        _ = step.train_step(batch) if i < STEPS // 2 else step.replay()
        optimizers[1].zero_grad()
        loss_of(theirs, batch).backward()
        optimizers[1].step()
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p, q)
            state, wanted = (o.state[each] for o, each in zip(optimizers, (p, q), strict=True))
            assert state.keys() == wanted.keys() == {"average", "largest"}
            torch.testing.assert_close(dict(state), dict(wanted))
    print(step.ir("step").count("optim.update"))


def test_one_file_is_enough(device: str) -> None:
    path = os.pathsep.join([children.SUPPORT, os.environ.get("PYTHONPATH", "")])
    result = children.run([sys.executable, __file__, device], env=os.environ | {"PYTHONPATH": path})
    assert (result.stdout.split(), result.stderr) == (["4"], "")


if __name__ == "__main__":
    pretend()
    train(sys.argv[1])
