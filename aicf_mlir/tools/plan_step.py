"""A plan as something to run: by the runtime on its device, or by the meaning of its launches on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NoReturn, Protocol

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir import _C
from aicf_mlir.dialects.plan import LaunchOp, ProgramOp, find_program
from aicf_mlir.errors import DataError, PlanError
from aicf_mlir.interpreters.arithmetic import ROUNDED, Arithmetic
from aicf_mlir.interpreters.numerics import NUMPY_TYPES, Array
from aicf_mlir.interpreters.plan import evaluate_plan, run_plan
from aicf_mlir.ir.registry import is_cpu, runs_on
from aicf_mlir.ir.roles import ARGUMENT_ROLES, RETURNED_ROLES, UPDATED_ROLES
from aicf_mlir.ir.signature import Key
from aicf_mlir.machine import hardware
from aicf_mlir.profiling import Profile
from aicf_mlir.profiling.measuring import Measured, profiled
from aicf_mlir.runtime.host_memory import check_memory
from aicf_mlir.runtime.program import Slot, load_program
from aicf_mlir.tools.tensors import NamedTensor, repeated, shown_names


class ArenaMemory(Protocol):
    """Arena memory that is written and read by byte offset."""

    def write(self, offset: int, data: bytes, /) -> None: ...
    def read(self, offset: int, nbytes: int, /) -> bytes: ...


class HostMemory:
    """An arena of the interpreter."""

    def __init__(self, nbytes: int):
        self.data = bytearray(nbytes)

    def write(self, offset: int, data: bytes, /) -> None:
        """Copy `data` to byte `offset`."""
        self.data[offset : offset + len(data)] = data

    def read(self, offset: int, nbytes: int, /) -> bytes:
        """A copy of `nbytes` bytes from byte `offset`."""
        return bytes(self.data[offset : offset + nbytes])


class PlanStep:
    """The one program of a module, on `device` ("cpu" or "cuda")."""

    def __init__(self, module: ModuleOp, device: str):
        self.op = find_program(module)
        self.device = "cpu" if device == "cpu" else "cuda:0"
        check_device(self.op, device)
        self.program = load_program(module)
        check_memory(self.program.peak if device == "cpu" else 0, f"@{self.program.name}")
        slots = self.program.slots
        self.arguments = [
            NamedTensor(slot.name, slot.role, slot.dtype, slot.shape, classes_of(self.op, symbol))
            for symbol, slot in slots.items()
            if slot.role in ARGUMENT_ROLES
        ]
        self.results = self._results()
        self._trace: list[str] = []

    @property
    def names(self) -> dict[Key, str]:
        """The displayed names of arguments and results."""
        return shown_names([*(argument.key for argument in self.arguments), *self.results])

    def _results(self) -> dict[Key, str]:
        """Outputs, gradients and updated tensors: the symbols of their slots, by role and name."""
        slots = self.op.slots
        written = {slots[name].root for launch in self.op.launches for name in launch.writes}
        return {
            (slot.role, slot.name): symbol
            for role in (*RETURNED_ROLES, *UPDATED_ROLES)
            for symbol, slot in self.program.slots.items()
            if slot.role == role and (role not in UPDATED_ROLES or symbol in written)
        }

    def run(
        self,
        values: Mapping[Key, Array],
        steps: int = 1,
        *,
        replay: bool = False,
        garbage: Callable[[int], bytes] | None = None,
    ) -> dict[Key, Array]:
        """The results after `steps` steps by the runtime: eagerly, or captured once and replayed.

        `garbage` makes the initial contents of the memory, from its size: it must not matter.
        """
        arenas, executor = self._ready(garbage)
        if replay:
            executor.run()
            executor.capture()
            self._fill(arenas, values)
            executor.replay(steps)
        else:
            self._fill(arenas, values)
            for _ in range(steps):
                executor.run()
        _C.synchronize(self.device)
        self._trace = executor.trace(choices=True)
        return self._read(arenas)

    def _ready(
        self, garbage: Callable[[int], bytes] | None = None
    ) -> tuple[dict[str, _C.Arena], _C.Executor]:
        """Memory of the plan, and the plan bound to it."""
        arenas = {
            name: _C.Arena(self.device, size, visible=name == "status")
            for name, size in self.program.arenas.items()
        }
        if garbage is not None:
            for name, size in self.program.arenas.items():
                if name != "status":  # set, it would skip the step
                    arenas[name].write(0, garbage(size))
        return arenas, _C.Executor(self.device, arenas, self.program.launches, self.program.status)

    def profile(self, values: Mapping[Key, Array], n: int) -> Profile:
        """The first step on `values`, measured `n` times. DataError if a check of it fails."""
        arenas, executor = self._ready()
        fill = partial(self._fill, arenas, values)
        fill()
        measured = Measured(executor)
        if not measured.run(n, fill):
            raise DataError(
                f"@{self.program.name}: a check fails on these values (code {executor.failed}), so launches are skipped and no "
                "time says anything; give others by --inputs"
            )
        return profiled(self.program.name, self.op, self.device, measured)

    def trace(self) -> list[str]:
        """Name and executed kernel id of every launch of one step, in order."""
        names = [launch.symbol for launch in self.op.launches]
        return [f"@{name} {kernel_id}" for name, kernel_id in zip(names, self._trace, strict=True)]

    def interpret(
        self, values: Mapping[Key, Array], steps: int = 1, arithmetic: Arithmetic = ROUNDED
    ) -> dict[Key, Array]:
        """The results after `steps` steps by the meaning of each launch: in arenas if it is rounded as defined."""
        if arithmetic is not ROUNDED:
            return self.evaluate(values, steps, arithmetic)
        arenas = {name: HostMemory(size) for name, size in self.program.arenas.items()}
        self._fill(arenas, values)
        for _ in range(steps):
            run_plan(self.op, {name: arena.data for name, arena in arenas.items()})
        return self._read(arenas)

    def evaluate(self, values: Mapping[Key, Array], steps: int, arithmetic: Arithmetic) -> dict[Key, Array]:
        slots = self.program.slots.items()
        arguments = {symbol: (slot.role, slot.name) for symbol, slot in slots if slot.role in ARGUMENT_ROLES}
        held: dict[str, Array] = {symbol: values[key] for symbol, key in arguments.items()}
        for _ in range(steps):
            held = evaluate_plan(self.op, {symbol: held[symbol] for symbol in arguments}, arithmetic)
        return {key: held[symbol] for key, symbol in self.results.items()}

    def _fill(self, arenas: Mapping[str, ArenaMemory], values: Mapping[Key, Array]) -> None:
        for slot in self.program.slots.values():
            if slot.role == "const" and slot.value is not None:
                self._write(arenas, slot, np.full(slot.shape, slot.value).astype(NUMPY_TYPES[slot.dtype]))
            elif slot.role in ARGUMENT_ROLES:
                self._write(arenas, slot, values[slot.role, slot.name])

    def _write(self, arenas: Mapping[str, ArenaMemory], slot: Slot, value: Array) -> None:
        arenas[slot.arena].write(slot.offset, np.ascontiguousarray(value).tobytes())

    def _read(self, arenas: Mapping[str, ArenaMemory]) -> dict[Key, Array]:
        results: dict[Key, Array] = {}
        for key, symbol in self.results.items():
            slot = self.program.slots[symbol]
            dtype = NUMPY_TYPES[slot.dtype]
            data = arenas[slot.arena].read(slot.offset, slot.nbytes)
            results[key] = np.frombuffer(data, dtype).reshape(slot.shape)
        return results


def device_of(module: ModuleOp) -> str:
    """The device for which a plan was made."""
    return "cpu" if is_cpu(find_program(module).target.data) else "cuda"


def target_of(device: str) -> str:
    """The target of plans for `device` on this machine; raises `PlanError` if there is no such device."""
    if device == "cpu":
        return "cpu"
    if (why := hardware.missing_cuda()) is not None:
        raise PlanError(f"--device cuda: {why}")
    return _C.target_of("cuda:0")


def check_device(program: ProgramOp, device: str) -> None:
    """Refuse, at the line of `program`, a plan that `device` of this machine cannot run."""
    target = program.target.data
    if device != "cpu" != target and (why := hardware.missing_cuda()) is not None:
        hint = "make one for this machine with aicf-opt --stage plan --target cpu"
        _refuse(program, f"the plan is for target {target}; {why}: {hint}")
    present = target_of(device)
    runs = target == present if "cpu" in (target, present) else runs_on(target, present)
    if not runs:
        hint = f"make one with aicf-opt --stage plan --target {present}"
        _refuse(program, f"the plan is for target {target} and does not run on {present}: {hint}")


def _refuse(program: ProgramOp, message: str) -> NoReturn:
    program.emit_error(message, PlanError(message))


def classes_of(program: ProgramOp, symbol: str) -> int:
    """The number of classes of a loss that reads slot `symbol` as class indices; 2 if there is none."""
    users: list[LaunchOp] = [launch for launch in program.launches if symbol in launch.reads]
    slots = program.slots
    for launch in users:
        if "cross_entropy" in launch.op.data:
            return next((spec[1] for name in launch.reads if len(spec := slots[name].spec[1]) == 2), 2)
    views = [slot for slot in slots.values() if slot.alias is not None and slot.root == symbol]
    return next((count for view in views if (count := repeated(view.layout))), 2)
