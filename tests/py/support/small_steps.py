"""Plans of steps of a few small launches on a GPU, by the meaning of their launches in the plan's own memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch

from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.interpreters.plan import run_plan, view
from aicf_mlir.passes.fuse.small_updates import SmallUpdateFusion

NUMBERS = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.1, "momentum": 0.9}
"""What the optimizers of these steps are called with."""


def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SmallUpdateFusion, "write", lambda self: None)


def launches(program: ProgramOp) -> list[str]:
    """What each launch of a plan is: its members where it is several."""
    return [str(launch.values.get("members", launch.op.data)) for launch in program.launches]


def trained(program: ProgramOp, tensors: Mapping[str, torch.Tensor], steps: int = 3) -> dict[str, Array]:
    """Parameters, buffers, states and outputs after some steps from these values, by role and name."""
    arenas = {name: bytearray(arena.nbytes) for name, arena in program.arenas.items()}
    found: dict[str, Array] = {}
    for slot in program.slots.values():
        if slot.alias is not None or slot.label is None:
            continue
        memory, name = view(slot, arenas), slot.label.data
        if slot.role.data in ("param", "buffer", "input"):
            memory[...] = tensors[name].detach().numpy()
        elif slot.role.data == "host_scalar":
            memory[...] = NUMBERS.get(name.split(".")[0], np.nan)
        if slot.role.data in ("param", "buffer", "state", "output"):
            found[f"{slot.role.data} {name}"] = memory
    for _ in range(steps):
        run_plan(program, arenas)
    return {name: memory.copy() for name, memory in found.items()}
