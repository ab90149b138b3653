"""The fastest kernel of each use, measured on this machine.

A candidate is a kernel of the registry with one of its choices. All candidates of a use run in turns on the same random operands,
several launches in a row. The median over the turns counts, and the preferred one stays unless another is faster by more than the
noise. Of a generated kernel the schedules are tried that are next to the best so far, until none is faster.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from aicf_mlir import _C
from aicf_mlir.codegen import schedule
from aicf_mlir.codegen.build import build
from aicf_mlir.errors import AicfError, SelectionError
from aicf_mlir.ir import registry
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.ir.layouts import dense_strides
from aicf_mlir.ir.registry import OperandSpec, Use
from aicf_mlir.kernels.kernel import Kernel
from aicf_mlir.tuning.lock import Choice, Lock
from aicf_mlir.tuning.machine import machine_of
from aicf_mlir.tuning.obeyed import text_of

TURNS = 7
WINDOW = 2e-3
"""Seconds of launches in a row."""
MOST_LAUNCHES = 64
NOISE = 0.02
"""The share by which another candidate must be faster than one that is preferred."""
FOLLOWING = {"chunks", "block", "ahead"}
"""Numbers of rows that depend on how many threads have one."""
MOST_ROUNDS = 4
"""How often the search for a schedule moves on."""
FLOATS = ("f16", "bf16", "f32", "f64")


@dataclass(frozen=True)
class Candidate:
    """A kernel that may run a use, as a plan would name it."""

    kernel: str
    workspace: int


def tuned(
    uses: Iterable[Use], generated: Mapping[str, tuple[Use, Kernel]], device: str, schedules: bool = False
) -> Lock:
    """The lock of a step that has these uses and generated kernels by id, measured on `device` ("cpu", "cuda:0"); with
    `schedules` those of generated kernels are measured too.
    """
    rows = {text_of(use): use for use in uses}
    chosen = {text: _row(text, use, device) for text, use in sorted(rows.items())}
    if not schedules:
        return Lock(machine_of(device), chosen, frozenset(generated))
    several = {
        id_: scheduled for id_, scheduled in generated.items() if len(schedule.candidates(scheduled[1])) > 1
    }
    for use, kernel in several.values():
        chosen[kernel.symbol] = _scheduled_row(use, kernel, device)
    return Lock(machine_of(device), chosen, frozenset(generated.keys() - several))


def _scheduled_row(use: Use, kernel: Kernel, device: str) -> Choice:
    """The schedule that no schedule beside it beats, from the chosen one on."""
    able = {each.id: each for each in schedule.candidates(kernel)}
    best, operands, tried = next(iter(able)), _Operands(use, device), dict[str, _Run]()
    times: dict[str, float] = {}
    for _ in range(MOST_ROUNDS):
        near = {id_: each for id_, each in able.items() if is_near(each.schedule, able[best].schedule)}
        codes = build(each for id_, each in near.items() if id_ not in tried)
        for id_, code in codes.items():
            tried[id_] = _Run(operands, Candidate(id_, schedule.workspace(able[id_])), code)
        times = _times({id_: tried[id_] for id_ in (best, *(id_ for id_ in near if id_ != best))})
        if (found := preferred(times)) == best:
            break
        best = found
    told = [f"{id_}: {time * 1e6:.2f} us" for id_, time in times.items() if id_ != best]
    return Choice(kernel.symbol, best, round(times[best] * 1e6, 2), tuple(told))


def is_near(one: str, other: str) -> bool:
    """True if two schedules differ in one number, besides those that follow from it, or are of two forms."""
    if one.partition(" ")[0] != other.partition(" ")[0]:
        return True
    names = {word.partition("=")[0] for word in set(one.split(" ")) ^ set(other.split(" "))} - FOLLOWING
    return len(names) <= 1 or names == {"lanes", "parts"}


def candidates(use: Use, device: str) -> list[Candidate]:
    """All candidates that run `use`, in the order of preference; SelectionError with the reasons if there is none."""
    target, found = _C.target_of(device), list[Candidate]()
    for kernel in registry.kernels_of(use.op):
        try:
            name, workspace = registry.select_kernel(use, target, kernel["name"])
        except SelectionError:
            continue
        choices = _C.kernel_choices(*use.arguments, name, use.counts)
        found += [Candidate(f"{name}[{choice}]", workspace) for choice in choices] or [
            Candidate(name, workspace)
        ]
    if not found:
        registry.select_kernel(use, target)  # says why
    return found


def _row(text: str, use: Use, device: str) -> Choice:
    able = candidates(use, device)
    if len(able) == 1:
        return Choice(text, able[0].kernel)
    operands = _Operands(use, device)
    runs, refused = dict[str, _Run](), list[str]()
    for candidate in able:
        try:
            runs[candidate.kernel] = _Run(operands, candidate)
        except AicfError as error:
            refused.append(f"{candidate.kernel}: {error}")
    if not runs:
        raise SelectionError(f"no kernel runs {text} on this machine: {'; '.join(refused)}")
    times = _times(runs)
    best = preferred(times)
    told = [f"{kernel}: {time * 1e6:.2f} us" for kernel, time in times.items() if kernel != best]
    return Choice(text, best, round(times[best] * 1e6, 2), (*told, *refused))


def _times(runs: Mapping[str, _Run]) -> dict[str, float]:
    """The median seconds of each."""
    turns: dict[str, list[float]] = {kernel: [] for kernel in runs}
    for _ in range(TURNS):
        for kernel, run in runs.items():
            turns[kernel].append(run.seconds())
    return {kernel: statistics.median(each) for kernel, each in turns.items()}


def preferred(times: Mapping[str, float]) -> str:
    """The first, in the order of preference, that no other beats by more than the noise."""
    fastest = min(times.values())
    return next(kernel for kernel, time in times.items() if time <= fastest * (1 + NOISE))


class _Operands:
    """Memory for a use: floats are normal numbers, since zeros multiply faster; indices are zero."""

    def __init__(self, use: Use, device: str):
        self.use, self.device = use, device
        self.arenas: dict[str, _C.Arena] = {}
        draw = np.random.default_rng(0)
        self.inputs = [self._operand(f"in{i}", spec, draw) for i, spec in enumerate(use.inputs)]
        self.outputs = [self._operand(f"out{i}", spec, None) for i, spec in enumerate(use.outputs)]

    def _operand(self, name: str, spec: OperandSpec, draw: np.random.Generator | None) -> _C.Slot:
        element, shape = spec[0], spec[1]
        strides = dense_strides(shape) if len(spec) == 2 else spec[2]
        last = sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
        count = last + 1 if all(shape) else 1
        arena = self.arenas[name] = _C.Arena(self.device, byte_size(element, (count,)))
        if draw is not None and element in FLOATS:
            arena.write(0, _floats(draw.standard_normal(count, dtype=np.float32), element))
        return name, 0, element, shape, strides


class _Run:
    """A candidate that is ready: some launches in a row."""

    def __init__(self, operands: _Operands, candidate: Candidate, code: _C.Code | None = None):
        use, workspace = operands.use, candidate.workspace
        arenas = {**operands.arenas, "workspace": _C.Arena(operands.device, workspace)}
        launch: _C.Launch = {
            "op": use.op,
            "kernel_id": candidate.kernel,
            "inputs": operands.inputs,
            "outputs": operands.outputs,
            "counts": use.counts,
            "attrs": use.arguments[3],
            "workspace": ("workspace", 0, workspace) if workspace else None,
            "code": code,
        }
        self._count = 1
        self._executor = _C.Executor(operands.device, arenas, [launch])
        self._executor.run()  # pages, caches and the setup of a kernel in its first run
        self._count = int(min(max(WINDOW / max(self.seconds(), 1e-9), 1), MOST_LAUNCHES))
        self._executor = _C.Executor(operands.device, arenas, [launch] * self._count)
        self._executor.run()

    def seconds(self) -> float:
        """The seconds of one launch."""
        return self._executor.time_step() / self._count


def _floats(values: np.ndarray[tuple[int], np.dtype[np.float32]], element: str) -> bytes:
    if element == "bf16":  # its upper half
        return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return values.astype({"f16": np.float16, "f32": np.float32, "f64": np.float64}[element]).tobytes()
