"""Plans for tests: made from functions, filled with values, and run by their meaning."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects.plan import ProgramOp, find_program
from aicf_mlir.interpreters import run_plan
from aicf_mlir.interpreters.numerics import NUMPY_TYPES, Array
from aicf_mlir.passes.pipeline import parse_passes, run_passes
from aicf_mlir.runtime.program import Slot, load_program
from aicf_mlir.text.parsing import make_context

PLAN = "decompose,lower,fuse,dce,elide-copies,select-kernels,bufferize,plan-memory"
"""From kernel ops (or nn and optim) to a plan for the CPU."""


def make_plan(module: ModuleOp, passes: str = PLAN) -> ProgramOp:
    """The plan of a copy of `module`, verified after each pass."""
    copy = module.clone()
    run_passes(make_context(), copy, parse_passes(passes))
    return find_program(copy)


class PlanMemory:
    """Arenas of a plan and the tensors in them. Memory starts as garbage: NaN for floats."""

    def __init__(self, plan: ProgramOp):
        self.plan = plan
        self.program = load_program(plan)
        self.arenas = {name: bytearray(b"\xff" * size) for name, size in self.program.arenas.items()}

    def view(self, slot: Slot) -> Array:
        """The tensor of a slot."""
        dtype = NUMPY_TYPES[slot.dtype]
        flat = np.frombuffer(self.arenas[slot.arena], dtype, int(np.prod(slot.shape)), slot.offset)
        return flat.reshape(slot.shape)

    def named(self, *roles: str) -> dict[tuple[str, str], Array]:
        """Copies of all tensors of some roles, by role and name."""
        slots = [slot for slot in self.program.slots.values() if slot.role in roles]
        return {(slot.role, slot.name): self.view(slot).copy() for slot in slots}

    def fill(self, values: Mapping[str, Array]) -> None:
        """Write the arguments by name."""
        for slot in self.program.slots.values():
            if slot.role in ("input", "param", "buffer", "state", "host_scalar"):
                self.view(slot)[...] = values[slot.name]
            elif slot.role == "status":
                self.view(slot)[...] = 0

    def run(self) -> None:
        """One step."""
        run_plan(self.plan, self.arenas)


def shuffle(program: ProgramOp, rng: np.random.Generator) -> None:
    """Put the launches in another order that `after` allows."""
    waiting, done = list(program.launches), set[str]()
    for launch in waiting:
        launch.detach()
    while waiting:
        ready = [launch for launch in waiting if set(launch.waits_for) <= done]
        chosen = ready[rng.integers(len(ready))]
        waiting.remove(chosen)
        done.add(chosen.symbol)
        program.body.block.add_op(chosen)
