"""Obeying a lock: the uses that it names, the passes that take it, and the check that the resulting plan runs its kernels.

`aicf-tune` makes a lock of a finished plan, and passes after select-kernels change launches. An update writes casts too
(persistent-weights), a product reads ahead (prefetch): that is another use, or another generated kernel, than select-kernels has
seen. So the caller of the passes hands them through `HeldLocks`, and checks after the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.plan import LaunchOp, ProgramOp
from aicf_mlir.dialects.plan.kernels import use_of
from aicf_mlir.errors import LockError, SelectionError
from aicf_mlir.ir.registry import Operand, OperandSpec, Use, schemas, segments
from aicf_mlir.tuning.lock import Lock

FIRST = "select-kernels"
LATER = ("persistent-weights", "prefetch")
"""Passes that choose kernels of the registry for launches that they change."""


def text_of(use: Use) -> str:
    """The text of a use: "gemm(a: f32[64, 256], b: f32[256, 8]) -> (out: f32[64, 8]) {trans_a = false}".

    Operands that are not dense in memory have their strides, in elements; attributes are in the order of their names.
    """
    schema, (inputs, outputs) = schemas()[use.op], use.counts or (None, None)
    attrs = ", ".join(f"{name} = {_value(value)}" for name, _, value in sorted(use.attrs))
    operands = _operands(schema.inputs, inputs, use.inputs)
    results = _operands(schema.outputs, outputs, use.outputs)
    return f"{use.op}({operands}) -> ({results})" + (f" {{{attrs}}}" if attrs else "")


def _operands(rows: Sequence[Operand], counts: Sequence[int] | None, specs: Sequence[OperandSpec]) -> str:
    return ", ".join(
        f"{name}: {_tensor(spec)}" for name, own in segments(rows, counts, specs).items() for spec in own
    )


def _tensor(spec: OperandSpec) -> str:
    strides = "" if len(spec) == 2 else f" by [{', '.join(map(str, spec[2]))}]"
    return f"{spec[0]}[{', '.join(map(str, spec[1]))}]{strides}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)  # pyright: ignore[reportUnknownArgumentType]


def prebuilt_uses(program: ProgramOp) -> dict[LaunchOp, Use]:
    """The uses of `program` that kernels of the registry serve, launch by launch."""
    slots, known = program.slots, schemas()
    return {
        launch: use_of(launch, slots) for launch in program.launches if not known[launch.op.data].generated
    }


def check_module(module: ModuleOp, lock: Lock) -> None:
    """Raise LockError for a launch that `lock` does not name, SelectionError for one with another kernel than in the lock.

    The launches are those of plans and, above plan level, the ops with a kernel id; without one nothing is run yet.
    """
    launches: list[LaunchOp | KernelOp] = []
    uses: dict[LaunchOp | KernelOp, str] = {}
    for each in module.walk():  # no `op`: an error that is of none would be shown at it
        if isinstance(each, ProgramOp):
            lock.check_target(each.target.data)
            launches += each.launches
            uses |= {launch: text_of(use) for launch, use in prebuilt_uses(each).items()}
        elif isinstance(each, KernelOp) and each.kernel_id is not None:
            launches.append(each)
            if not isinstance(each, GeneratedOp):
                uses[each] = text_of(each.use)
    try:
        lock.check_whole(uses.values(), (_kernel(launch) for launch in launches if launch not in uses))
    except LockError as error:
        if any(isinstance(launch, KernelOp) for launch in launches):
            error.add_note(
                "above plan level, where later passes still change launches: a lock is made of finished plans"
            )
        raise
    for launch, use in uses.items():
        if (wanted := lock.rows[use].kernel) != (taken := _kernel(launch)):
            name = f"launch @{launch.symbol} of {use}" if isinstance(launch, LaunchOp) else use
            message = f"{name} runs {taken} and not {wanted}"
            launch.emit_error(message, SelectionError(message))


def _kernel(launch: LaunchOp | KernelOp) -> str:
    return "" if launch.kernel_id is None else launch.kernel_id.data


def lock_options(path: str) -> Mapping[str, str]:
    """The options of passes that take the lock at `path`."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return {FIRST: f'lock="{escaped}"'}


@dataclass
class HeldLocks:
    """The locks that the passes of one run take, in their order."""

    paths: list[str] = field(default_factory=list[str])

    def hand_on(self, passes: Sequence[ModulePass]) -> tuple[ModulePass, ...]:
        """The next passes of the run, with the lock of select-kernels, which leaves reporting its gaps to `check`."""
        return tuple(self._handed(passes))

    def _handed(self, passes: Sequence[ModulePass]) -> Iterator[ModulePass]:
        for current in passes:
            if current.name != FIRST and current.name not in LATER:
                yield current
                continue
            taking = cast(Any, current)
            if taking.lock:
                self.paths.append(taking.lock)
            if current.name == FIRST:
                yield replace(taking, whole=taking.whole and not taking.lock)
            else:
                yield replace(taking, lock=self.paths[-1] if self.paths else "")

    def check(self, module: ModuleOp) -> None:
        """Check the output of the last pass: errors are those of `obeyed.check_module`."""
        for path in dict.fromkeys(self.paths):
            check_module(module, Lock.read(path))
