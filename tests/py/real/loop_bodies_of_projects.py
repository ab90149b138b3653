"""Loop bodies as well-known projects write them: the parts that a body of one's own seldom has."""

from __future__ import annotations

import importlib
import sys
import tempfile
from abc import ABC
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from loop_bodies import World, mlp
from torch import nn
from written_optimizers import SignSGD


def frozen_judge() -> World:
    """Pix2Pix: the object keeps what it computes, and the judge is left frozen."""

    class Model:
        fake: Any
        judged: Any
        fooled: Any

        def __init__(self):
            self.maker, self.judge = nn.Linear(4, 2), nn.Linear(2, 1)
            self.of_maker = torch.optim.SGD(self.maker.parameters(), lr=0.05)
            self.of_judge = torch.optim.SGD(self.judge.parameters(), lr=0.05)

        def freeze(self, is_frozen: bool) -> None:
            for p in self.judge.parameters():
                p.requires_grad = not is_frozen

        def optimize(self, x: torch.Tensor, t: torch.Tensor) -> None:
            self.fake = self.maker(x)
            self.freeze(False)
            self.of_judge.zero_grad()
            self.judged = (
                F.softplus(self.judge(self.fake.detach())).mean() + F.softplus(-self.judge(t)).mean()
            )
            self.judged.backward()
            self.of_judge.step()
            self.freeze(True)
            self.of_maker.zero_grad()
            self.fooled = F.softplus(-self.judge(self.fake)).mean() + F.l1_loss(self.fake, t)
            self.fooled.backward()
            self.of_maker.step()

    model = Model()

    def body(batch: Any) -> Any:
        model.optimize(batch["x"], batch["t"])
        return model.judged.detach(), model.fooled.detach()

    return World(body, [model.maker, model.judge], [model.of_maker, model.of_judge])


MEMO = """
BACKENDS, MADE = {}, {}
class Backend:
    def mean(self, x):
        return x.mean()
def backend_of(x):
    if type(x) not in BACKENDS:
        for name, backend in [*MADE.items()]:
            BACKENDS[type(x)] = backend
            return backend
        BACKENDS[type(x)] = MADE["torch"] = Backend()
    return BACKENDS[type(x)]
"""
"""How einops finds the backend of a tensor."""


class Abstract(SignSGD, ABC):
    """As the optimizers of pytorch_optimizer are."""


def memo_of_a_package() -> World:
    """The first call of einops is inside of the body; the class of the optimizer has a metaclass."""
    with tempfile.TemporaryDirectory() as folder:
        packages = Path(folder) / "site-packages"
        packages.mkdir()
        (packages / "memo_of_a_package.py").write_text(MEMO)
        sys.path.insert(0, str(packages))
        sys.modules.pop("memo_of_a_package", None)
        importlib.invalidate_caches()
        package = importlib.import_module("memo_of_a_package")
        sys.path.remove(str(packages))
    model = mlp()
    opt = Abstract(model.parameters(), lr=1e-2, momentum=0.9)

    def body(batch: Any) -> Any:
        opt.zero_grad()
        squares = (model(batch["x"]) - batch["t"]) ** 2
        loss = package.backend_of(squares).mean(squares)
        loss.backward()
        opt.step()
        return loss

    return World(body, [model], [opt])


OF_PROJECTS = {make.__name__: make for make in (frozen_judge, memo_of_a_package)}
