"""The fastest kernel of each use, measured on this machine.

A candidate is a kernel of the registry with one of its choices. All candidates of a use run in turns on the same random operands,
several launches in a row. The median over the turns counts, and the preferred one stays unless another is faster by more than the
noise.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from aicf_mlir import _C
from aicf_mlir.errors import AicfError, SelectionError
from aicf_mlir.ir import registry
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.ir.layouts import dense_strides
from aicf_mlir.ir.registry import OperandSpec, Use
from aicf_mlir.tuning.lock import Choice, Lock
from aicf_mlir.tuning.machine import machine_of
from aicf_mlir.tuning.obeyed import text_of

TURNS = 7
WINDOW = 2e-3
"""Seconds of launches in a row."""
MOST_LAUNCHES = 64
NOISE = 0.02
"""The share by which another candidate must be faster than one that is preferred."""
FLOATS = ("f16", "bf16", "f32", "f64")


@dataclass(frozen=True)
class Candidate:
    """A kernel that may run a use, as a plan would name it."""

    kernel: str
    workspace: int


def tuned(uses: Iterable[Use], generated: Iterable[str], device: str) -> Lock:
    """The lock of a step that has these uses and generated kernels, measured on `device` ("cpu", "cuda:0")."""
    rows = {text_of(use): use for use in uses}
    chosen = {text: _row(text, use, device) for text, use in sorted(rows.items())}
    return Lock(machine_of(device), chosen, frozenset(generated))


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
    turns: dict[str, list[float]] = {kernel: [] for kernel in runs}
    for _ in range(TURNS):
        for kernel, run in runs.items():
            turns[kernel].append(run.seconds())
    times = {kernel: statistics.median(each) for kernel, each in turns.items()}
    best = preferred(times)
    told = [f"{kernel}: {time * 1e6:.2f} us" for kernel, time in times.items() if kernel != best]
    return Choice(text, best, round(times[best] * 1e6, 2), (*told, *refused))


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

    def __init__(self, operands: _Operands, candidate: Candidate):
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
