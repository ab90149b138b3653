"""The passes between a step and its plan, one by one: after each the module means what it did before it."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from lowered_steps import CLASSES, LoweredStep
from plan_walks import Walk, conflicts
from plans import shuffle
from random_layers import Draw
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from aicf_mlir.analysis import placement
from aicf_mlir.dialects.plan import find_program
from aicf_mlir.errors import AicfError
from aicf_mlir.interpreters.arithmetic import EXACT, ROUNDED, Arithmetic, Exact
from aicf_mlir.interpreters.numerics import FLOATS, Array, round_to
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.ir.signature import Key
from aicf_mlir.ir.tensor_op import element_type
from aicf_mlir.passes import (
    FLAGS,
    free_early,
    join_products,
    keep_parts,
    large_constants,
    merge_copies,
    merge_products,
    plan_memory,
    recompute,
)
from aicf_mlir.passes.fuse import loops as fused_loops
from aicf_mlir.passes.fuse import segments, small_batches, small_updates, update
from aicf_mlir.passes.pipeline import parse_passes, run_passes
from aicf_mlir.stages import STAGES, make_context
from aicf_mlir.tools.function_step import FunctionStep
from aicf_mlir.tools.tensors import random_value

TARGETS = ("sm_90", "sm_90+cublaslt+cudnn", "sm_80", "cpu")

THRESHOLDS: tuple[tuple[object, str, tuple[float, ...]], ...] = (
    (recompute, "LARGE", (1, 1, 100)),
    (recompute, "SMALL", (1, 16, 16)),
    (recompute, "FEW_LINES", (12, 12, 3)),
    (large_constants, "LARGE", (1, 1, 64)),
    (keep_parts, "LARGE", (1, 1, 100)),
    (keep_parts, "SHARE", (1, 2, 3)),
    (keep_parts, "LONG", (1, 1, 4)),
    (free_early, "WORTH", (1, 1, 64)),
    (free_early, "FARTHEST", (8, 100)),
    (merge_copies, "MOST_TENSORS", (15, 2, 3)),
    (merge_copies, "MOST_BYTES", (1 << 22, 64, 400)),
    (merge_copies, "MOST_KEPT", (1 << 24, 500)),
    (merge_products, "LEAST_ROWS", (1, 1024)),
    (join_products, "MOST_BYTES", (8 << 20, 200)),
    (plan_memory, "MUCH", (0, 4 << 20)),
    (plan_memory, "MORE", (1.0, 1.1)),
    (plan_memory, "SMALL", (0, 64 << 20, 1024)),
    (placement, "WORTH", (0, 4 << 20)),
    (fused_loops, "LARGE", (1, 1 << 21)),
    (segments, "SMALL_ON_GPU", (1, 1 << 24)),
    (small_batches, "SMALL", (1, 64)),
    (small_updates, "LONGEST", (1, 1024)),
    (update, "LEAST", (1, 1 << 17)),
)
"""Sizes from which on, or up to which, passes change something, and what is drawn for them."""

MOVING = (*FLAGS[FLAGS.index("large-constants") :], "dce")
"""Passes that compute nothing otherwise: each result has the same bits after them."""

KERNEL_PASSES = (
    "fuse",
    "recompute",
    "dce",
    "large-constants",
    "elide-copies",
    "merge-copies",
    "keep-parts",
)
"""Passes from kernel ops to kernel ops, which may run in any order. Equal copies are parts of different joins, so cse may not."""
PLAN_PASSES = ("persistent-weights", "free-early", "multi-stream", "prefetch")
"""Passes of a plan without addresses; what is prefetched depends on all others."""

CLOSE = 1e-7
"""Of the size of a tensor: between the exact meanings before and after a pass, both in float64."""
COARSE = 2.0**-5
"""The same where they are rounded to 16 bits."""
MOVED, FACTOR = 2.0**-24, 20.0
"""By which part operands are moved, as the constants of a body are rounded, and how often what that changes is allowed."""
STEPS = 2


@contextmanager
def thresholds(seed: int) -> Generator[dict[str, float]]:
    """Thresholds that small tensors reach, as the seed says."""
    draw, drawn = Draw(seed), dict[str, float]()
    with ExitStack() as stack:
        for module, name, values in THRESHOLDS:
            value = draw.choice(values)
            drawn[f"{getattr(module, '__name__', module)}.{name}"] = value
            stack.enter_context(patch.object(module, name, value))
        yield drawn


def arguments(module: ModuleOp, seed: int) -> dict[Key, Array]:
    """Values of the arguments of a step; of whole numbers, class indices."""
    rng, found = np.random.default_rng(seed), dict[Key, Array]()
    for tensor in FunctionStep(module).arguments:
        found[tensor.key] = random_value(tensor, seed)
        if tensor.role == "input" and tensor.dtype not in FLOATS:
            found[tensor.key] = rng.integers(0, CLASSES, tensor.shape).astype(found[tensor.key].dtype)
        elif tensor.role == "state" and tensor.dtype in FLOATS and tensor.shape:
            found[tensor.key] = np.abs(rng.normal(size=tensor.shape) / 100).astype(found[tensor.key].dtype)
    return found


class Meanings:
    """What a function means so far, in both arithmetics."""

    def __init__(self, module: ModuleOp, values: Mapping[Key, Array]):
        self.values = values
        self.exact, self.rounded = self.of(module, EXACT), self.of(module, ROUNDED)
        self.narrow = any(is_narrow(value) for op in module.walk() for value in op.results)
        """Whether a formula may round to 16 bits in between, as the product of two gradients of which the sign is asked."""
        self.stored = self.of(module, Narrow())
        moved = [self.of(module, Moved(seed)) for seed in range(2)]
        self.noise = {
            key: max(distance(value, run[key]) for run in moved) for key, value in self.exact.items()
        }
        """How far the last digits of operands carry each result: all the way, where it is left of a sum that cancels."""

    def of(self, module: ModuleOp, arithmetic: Arithmetic) -> dict[Key, Array]:
        with np.errstate(all="ignore"):
            return FunctionStep(module).run(self.values, 1, arithmetic)

    def check(self, name: str, module: ModuleOp) -> list[str]:
        """What is otherwise after a pass."""
        exact, rounded = self.of(module, EXACT), self.of(module, ROUNDED)
        faults = [
            f"{key}: {why}"
            for key in self.exact
            if (why := differs(self.exact[key], exact.get(key), FACTOR * self.noise[key]))
            and (not self.narrow or differs(self.rounded[key], rounded.get(key), close=COARSE))
        ]
        if not faults and name in MOVING:
            faults = [
                f"{key}: other bits"
                for key, value in self.rounded.items()
                if value.tobytes() != rounded[key].tobytes()
            ]
        self.exact, self.rounded = exact, rounded
        if self.narrow:
            stored = self.of(module, Narrow())
            if not faults and name == "recompute":
                faults = [
                    f"{key}: {why}, where 16 bits alone are rounded"
                    for key, value in self.stored.items()
                    if (why := differs(value, stored[key], FACTOR * self.noise[key]))
                ]
            self.stored = stored
        return faults


def is_narrow(value: SSAValue) -> bool:
    """Whether a value is a tensor of f16 or bf16."""
    return isinstance(value.type, TensorType) and element_name(element_type(value)) in NARROW


class Moved(Exact):
    """Exact, but for the last digits of each operand."""

    def __init__(self, seed: int):
        self._rng = np.random.default_rng(seed)

    def widen(self, operand: Array) -> Array:
        """The operand, moved; whole numbers stay."""
        values = super().widen(operand)
        if values.dtype != np.float64:
            return values
        return np.where(
            values == np.rint(values), values, values * (1 + MOVED * self._rng.uniform(-1, 1, values.shape))
        )


class Narrow(Arithmetic):
    """Exact, but for results of f16 and bf16, which are rounded: what is computed again has the bits that were stored."""

    def round(self, values: Array, element: str) -> Array:
        """Of 16 bits, rounded; other floats stay as computed."""
        return round_to(values, element) if element in NARROW else EXACT.round(values, element)

    def dtype(self, element: str) -> np.dtype[Any]:
        """float64 for other floats."""
        return super().dtype(element) if element in NARROW else EXACT.dtype(element)


def distance(one: Array, other: Array) -> float:
    """The largest difference between numbers."""
    if one.dtype.kind in "iub":
        return 0.0
    with np.errstate(all="ignore"):
        return float(np.max(np.nan_to_num(np.abs(one - other), nan=0.0, posinf=0.0), initial=0.0))


def differs(before: Array, after: Array | None, noise: float = 0.0, close: float = CLOSE) -> str | None:
    """How two values differ by more than float64 rounds."""
    if after is None or before.shape != after.shape or before.dtype != after.dtype:
        return "missing, or of another type"
    if before.dtype.kind in "iub":
        return None if np.array_equal(before, after) else "other whole numbers"
    before, after = before.astype(np.float64), after.astype(np.float64)
    same = (before == after) | (np.isnan(before) & np.isnan(after))
    size = np.abs(np.where(np.isfinite(before), before, 0.0))
    with np.errstate(all="ignore"):
        near = np.abs(before - after) <= close * (size + (size.max() if size.size else 0.0)) + noise
    wrong = ~(same | near)
    if not wrong.any():
        return None
    at = tuple(int(place) for place in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} elements, at {at} {float(before[at])!r}, now {float(after[at])!r}"


def check_passes(step: LoweredStep, target: str) -> None:
    """Fail where a pass of the stages changes the meaning, or where the plan's memory does."""
    module, draw = step.traced(), Draw(step.seed ^ 0xCA5E)
    with thresholds(step.seed) as drawn:
        try:
            values = to_step(module, step, target)
            check_lowered(module, values, passes_of(step, target, draw), draw, target)
        except AssertionError as error:
            raise AssertionError(f"{error}\n\n{step!r}\n{target}\n{drawn}") from error


def to_step(module: ModuleOp, step: LoweredStep, target: str) -> dict[Key, Array]:
    """Lower to the whole step, still pure: the module after it is the first of one signature; and values for its arguments."""
    for stage in STAGES[:3]:
        run_passes(make_context(), module, parse_passes(stage.pass_list(target, step.options)))
    return arguments(module, step.seed)


def passes_of(step: LoweredStep, target: str, draw: Draw) -> list[ModulePass]:
    """The passes that follow: those of the stages, or some of them in another order."""
    rows = {stage.name: stage.pass_list(target, step.options) for stage in STAGES}
    if draw.random() < 0.5:
        text = ",".join(rows[name] for name in ("lowered", "fused", "kernel", "buffers", "plan"))
        return list(parse_passes(text))
    chosen = [draw.choice(KERNEL_PASSES) for _ in range(draw.choice((1, 2, 4, 8)))]
    if draw.random() < 0.5:
        chosen.insert(0, "fuse")
    after = sorted(draw.sample(PLAN_PASSES, draw.choice((0, 1, 2, 4))), key="prefetch".__eq__)
    named = [*chosen, "select-kernels", "bufferize", *after, "plan-memory"]
    free = {"dce", "bufferize", "plan-memory", *PLAN_PASSES}
    texts = [name if name in free else f'{name}{{target="{target}"}}' for name in named]
    return list(parse_passes(",".join([rows["lowered"], *texts])))


def check_lowered(
    module: ModuleOp, values: Mapping[Key, Array], passes: Sequence[ModulePass], draw: Draw, target: str
) -> None:
    """Run the passes on a step, and compare."""
    meanings = Meanings(module, values)
    ran: list[str] = []
    with np.errstate(all="ignore"):
        for number, each in enumerate(passes):
            ran.append(each.name)
            if each.name == "bufferize":
                twice = FunctionStep(module).run(values, STEPS)
                check_plan(module, values, passes[number:], meanings.rounded, twice, draw, ran)
                return
            run_passes(make_context(), module, [each])
            if faults := meanings.check(each.name, module):
                raise AssertionError("\n".join([f"after {', '.join(ran)}:", *faults]))


def check_plan(
    module: ModuleOp,
    values: Mapping[Key, Array],
    passes: Sequence[ModulePass],
    once: Mapping[Key, Array],
    twice: Mapping[Key, Array],
    draw: Draw,
    ran: Sequence[str],
) -> None:
    """Make a plan, and walk through it in the order of the text and in others that `after` allows."""
    try:
        run_passes(make_context(), module, passes)
    except AicfError as error:
        raise AssertionError(f"{[*ran, *(each.name for each in passes)]}: {error}") from error
    program = find_program(module)
    told = ", ".join((*ran, *(each.name for each in passes[1:])))
    if found := conflicts(program):
        raise AssertionError("\n".join([f"after {told}:", *found]))
    rng = np.random.default_rng(draw.getrandbits(32))
    for way in range(2):
        if way:
            module = module.clone()
            program = find_program(module)
            shuffle(program, rng)
        walk = Walk(program, rng)
        walk.fill(values)
        for number, expected in enumerate((once, twice)):
            try:
                walk.step(again=number > 0)
            except AssertionError as error:
                raise AssertionError(f"after {told}, order {way}, step {number}: {error}") from None
            found = walk.results()
            faults = [
                f"{key}: other bits"
                for key in expected
                if key in found and found[key].tobytes() != expected[key].tobytes()
            ]
            faults += [f"{key}: no result" for key in expected if key not in found and key[0] != "status"]
            if faults:
                raise AssertionError("\n".join([f"after {told}, order {way}, step {number}:", *faults]))
