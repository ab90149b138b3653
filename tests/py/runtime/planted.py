"""Steps with a fault between the model and what is bound, for the tests of the certificate."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from models import (
    mlp,
    mse,
    regression,
)
from torch import nn
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir import _C
from aicf_mlir.dialects.plan import find_program
from aicf_mlir.dialects.plan.hazards import order_launches
from aicf_mlir.frontend import trace
from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.ir.diagnostics import Source
from aicf_mlir.runtime.certificate import CHECKS, Certificate, Subject, certify
from aicf_mlir.runtime.program import Program, load_program
from aicf_mlir.stages import Snapshots, run_stages
from aicf_mlir.text.parsing import make_context, parse_source

HOST_SCALARS = {"lr": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "bc1_pin": np.nan, "bc2_pin": np.nan}


class Gated(nn.Module):
    """h · lin(h) with h = tanh(lin(x)): backward reads both factors."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.first(x))
        return h * self.second(h)


class Side(Gated):
    """tanh(lin(x)) · lin(x): a factor is beside a product, not under it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.first(x)) * self.second(x)


class Planted:
    """A step on arenas of its own, with a fault between the model and what is bound."""

    def __init__(self, model: nn.Module | None = None):
        model = model or mlp(8, 17, 8, activation=nn.GELU)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        self.batch = regression(5)
        traced = trace(model, mse, self.batch, optimizer=optimizer)
        self.parameters = {name: p.detach().numpy() for name, p in traced.parameters.items()}
        snapshots = Snapshots()
        run_stages(traced.module, make_context(), after_each=snapshots)
        self.stages: dict[str, ModuleOp] = dict(snapshots)

    def edit(self, old: str, new: str, stage: str = "plan") -> None:
        """Replace the one text `old` in a stage; its launches keep their source lines."""
        text = str(self.stages[stage])
        assert text.count(old) == 1, f"{text.count(old)} times {old!r} in\n{text}"
        self.replace(stage, text.replace(old, new))

    def replace(self, stage: str, text: str) -> None:
        """Give a stage another text."""
        module = parse_source(make_context(), Source("edited", text)).module
        known = {op.attributes.get("sym_name") or str(op): op.location for op in self.stages[stage].walk()}
        for op in module.walk():
            op.location = known.get(op.attributes.get("sym_name") or str(op), next(reversed(known.values())))
        self.stages[stage] = module

    def redo(self, first: str) -> None:
        """Run the stages after the one that was edited again; what must wait for what follows from the launches."""
        names = list(self.stages)
        module = self.stages[names[names.index(first) - 1]].clone()
        if first == "plan":
            order_launches(find_program(module).launches, find_program(module).slots)
        run_stages(module, make_context(), first=first, after_each=self.stages.__setitem__)

    def subject(self, **changes: Any) -> Subject:
        """The step bound and captured; `changes` are fields of its Program."""
        program = dataclasses.replace(load_program(self.stages["plan"]), **changes)
        arenas = {name: _C.Arena("cpu", nbytes) for name, nbytes in program.arenas.items()}
        executor = _C.Executor("cpu", arenas, program.launches)
        executor.capture()
        subject = Subject(
            "planted", program, load_program(self.stages["plan"]), self.stages, arenas, executor, "cpu", 0
        )
        self.fill(subject)
        return subject

    def fill(self, subject: Subject) -> None:
        values: Mapping[str, Any] = {
            **HOST_SCALARS,
            **self.parameters,
            **{k: t.numpy() for k, t in self.batch.items()},
        }
        for slot in subject.program.slots.values():
            value = slot.value if slot.role == "const" else values.get(slot.name, 0.0)
            if slot.role not in ("temp", "output", "grad"):
                subject.write(
                    slot, np.broadcast_to(np.asarray(value), slot.shape).astype(NUMPY_TYPES[slot.dtype])
                )

    def program(self) -> Program:
        """What the plan's text says, to be changed."""
        return load_program(self.stages["plan"])


def examined(subject: Subject) -> Certificate:
    """Its certificate; every byte that lasts must be as it was."""
    before = [subject.arenas[name].read(at, size) for name, at, size in subject.compared()]
    certificate = certify(subject, 3)
    assert [subject.arenas[name].read(at, size) for name, at, size in subject.compared()] == before
    return certificate


def found(certificate: Certificate, check: str) -> tuple[str, str]:
    """Message and op of the one finding of a check; its launch must have the user's line."""
    (finding,) = certificate.of(check)
    if finding.culprit is None:
        return finding.message, ""
    assert finding.culprit.op == "advance" or re.search(r"\.py:\d+(, layer .+)?$", finding.culprit.source)
    return finding.message, f"{finding.culprit.launch} {finding.culprit.op}"


def failing(certificate: Certificate) -> list[str]:
    """The checks that do not hold."""
    return [check for check in CHECKS if certificate.of(check)]
