"""A random function of nn ops: its meaning against torch, its levels and its plan against its meaning, and its replay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from random_functions import NNProgram, nn_program
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects.nn.convolutions import ConvolvingOp
from aicf_mlir.interpreters.arithmetic import EXACT, ROUNDED, Arithmetic, Disturbed
from aicf_mlir.interpreters.numerics import NUMPY_TYPES, Array, precision
from aicf_mlir.ir.printing import to_text
from aicf_mlir.ir.signature import Key
from aicf_mlir.ir.verify import Verifier
from aicf_mlir.stages import run_stages
from aicf_mlir.text.parsing import make_context, parse_module
from aicf_mlir.tools.compare import FACTOR, Reference
from aicf_mlir.tools.function_step import FunctionStep
from aicf_mlir.tools.plan_step import PlanStep, target_of
from aicf_mlir.tools.tensors import random_value

LEVELS = ("lowered", None, "fused", None, "kernel", None, "plan", None)
"""Stages of which each other program runs one, parsed from its text: reading is a third of the time of a program."""

EACH_PASS = 4
"""One program in so many is verified after each pass, which takes a third of the time; the others where they are read."""


class Unverified(Verifier):
    """Leaves it to who reads the module."""

    def __call__(self, module: ModuleOp) -> None:
        del module


OPTIONS = {"apply-optimizer": "kind=sgd keep-grads"}
STEPS = 2
"""Of the replay."""


class Stored(Disturbed):
    """Disturbed, and of 16-bit types as one rounding disturbs: fused kernels leave some of theirs out."""

    def __init__(self, seed: int, alike: bool = False):
        super().__init__(seed, alike)
        self._roundings = np.random.default_rng(seed)

    def widen(self, operand: Array) -> Array:
        """The operand, moved by up to half a unit of its own type."""
        values = super().widen(operand)
        if operand.dtype.itemsize != 2:
            return values
        epsilon = precision(operand.dtype)[0]
        whole = (values == np.rint(values)) & (np.abs(values) <= 0.125 / epsilon)
        return np.where(
            whole, values, values * (1.0 + epsilon * self._roundings.uniform(-0.5, 0.5, values.shape))
        )


DISTURBED_RUNS, ALIKE_RUNS = 3, 2
MORE = 4
"""Times as many runs where something disagrees: three seldom come near to what two roundings of one number can do."""


def check_function(program: NNProgram, device: str) -> None:
    """Fail with all that disagrees."""
    level = LEVELS[program.seed % len(LEVELS)]
    texts: dict[str, str] = {}
    steps: dict[str, FunctionStep] = {}

    def keep(stage: str, module: ModuleOp) -> None:
        if stage == "step":
            steps[stage] = FunctionStep(module.clone())
        if stage == level:
            texts[stage] = to_text(module) + "\n"

    module = program.module.clone()
    verifier = Verifier() if program.seed % EACH_PASS == 0 else Unverified()
    run_stages(
        module,
        make_context(),
        target=target_of(device),
        options=OPTIONS,
        after_each=keep,
        verifier=verifier,
    )
    step = steps["step"]
    values = {
        tensor.key: program.values[tensor.key] if tensor.key in program.values else random_value(tensor, 0)
        for tensor in step.arguments
    }
    if device == "cuda" and any(isinstance(op, ConvolvingOp) for op in program.module.walk()):
        # a library multiplies what is not finite by the zeros of its paddings, for torch too
        values = {key: as_finite(value) for key, value in values.items()}

    def interpret(arithmetic: Arithmetic) -> dict[Key, Array]:
        return step.run(values, 1, arithmetic)

    def disturbed(times: range) -> list[dict[Key, Array]]:
        runs = [interpret(Stored(seed)) for n in times for seed in of_round(n, DISTURBED_RUNS)]
        return runs + [interpret(Stored(seed, alike=True)) for n in times for seed in of_round(n, ALIKE_RUNS)]

    plan = PlanStep(module, device)
    with np.errstate(all="ignore"):
        ran = {"the plan": plan.run(values)}
        if device == "cpu" and level is not None:
            ran[f"stage {level!r}"] = of_text(texts[level], level, values)
        exact = interpret(EXACT)  # disturbed too: 0 · inf is a NaN only where something was rounded to 0
        reference = Reference(interpret(ROUNDED), exact, [exact, *disturbed(range(1))])
        if faults := all_misses(program, reference, ran):
            reference = replace(reference, disturbed=[*reference.disturbed, *disturbed(range(1, MORE))])
            faults = all_misses(program, reference, ran)
    eager, replayed = plan.run(values, STEPS), plan.run(values, STEPS, replay=True)
    faults += [
        f"{name(key)}: replay is not eager"
        for key in eager
        if eager[key].tobytes() != replayed[key].tobytes()
    ]
    assert not faults, "\n".join(faults)


def as_finite(value: Array) -> Array:
    """The value with zeros for what is not finite."""
    return np.where(np.isfinite(value), value, value.dtype.type(0))


def of_text(text: str, level: str, values: dict[Key, Array]) -> dict[Key, Array]:
    """What the text of a stage means; it must print as itself again."""
    module = parse_module(text)
    assert to_text(module) + "\n" == text, f"the text of stage {level!r} does not round-trip"
    return PlanStep(module, "cpu").interpret(values) if level == "plan" else FunctionStep(module).run(values)


def of_round(number: int, count: int) -> range:
    """The seeds of one of several rounds of runs."""
    return range(number * count, (number + 1) * count)


def all_misses(program: NNProgram, reference: Reference, ran: dict[str, dict[Key, Array]]) -> list[str]:
    """What torch and each of these runs say otherwise."""
    found = beside_torch(program, reference)
    return found + [text for what, ours in ran.items() for text in misses(what, reference, ours)]


def name(key: Key) -> str:
    """Of a result."""
    return f"{key[0]} {key[1]}"


def misses(what: str, reference: Reference, ours: dict[Key, Array]) -> list[str]:
    """The results that rounding does not explain."""
    found: list[str] = []
    for key in reference.rounded:
        if key not in ours:
            found.append(f"{name(key)}: missing from {what}")
            continue
        error, allowed = reference.judge(key, ours[key])
        if not error <= allowed and not is_rounded_zero(reference, key, ours[key]):
            found.append(f"{name(key)}: error {error:.3g} of {what}, allowed {allowed:.3g}")
    return found


def is_rounded_zero(reference: Reference, key: Key, ours: Array) -> bool:
    """Whether a result that cancels to 0 by its definition, however operands are rounded, is 0 up to the rounding of ours.

    So does the gradient of the only key that a query sees; a kernel takes one rounded product from another.
    """
    runs = [reference.rounded[key], reference.exact[key], *(run[key] for run in reference.disturbed)]
    if ours.dtype.kind in "iub" or any(np.any(run != 0) for run in runs):
        return False
    return bool(np.all(np.abs(ours.astype(np.float64)) <= UNITS * precision(ours.dtype)[0]))


def beside_torch(program: NNProgram, reference: Reference) -> list[str]:
    """What nn means is what torch computes, both in float64.

    Numbers of a body are those of the type that it computes in, and a planted operand is rounded beside the others that it
    depends on; a program that magnifies errors does so with the last bit of either. At special values torch's own
    derivatives differ between its formulas, so only levels are compared there.
    """
    if program.special:
        return []
    found: list[str] = []
    for key, expected in program.expected.items():
        ours, theirs = torch.from_numpy(np.array(reference.exact[key])), expected
        if not theirs.is_floating_point():
            if not torch.equal(ours.to(theirs.dtype), theirs):
                found.append(f"{name(key)}: not what torch computes")
            continue
        scale = float(theirs[theirs.isfinite()].abs().amax()) if bool(theirs.isfinite().any()) else 0.0
        allowed = UNITS * precision(NUMPY_TYPES[program.compute])[0] * max(scale, 1.0)
        allowed = torch.maximum(2 * program.drifts.get(key, torch.zeros(())), torch.tensor(allowed))
        if program.compute == "f64":  # others are moved by more than the last bit of float64
            allowed = torch.maximum(allowed, FACTOR * torch.from_numpy(changes(reference, key)))
        same = (ours == theirs) | (ours.isnan() & theirs.isnan())
        wrong = ~(same | ((ours - theirs).abs() <= allowed))
        if bool(wrong.any()):
            at = tuple(int(place) for place in wrong.nonzero()[0])
            found.append(f"{name(key)}{list(at)}: {float(ours[at])!r}, torch {float(theirs[at])!r}")
    return found


def changes(reference: Reference, key: Key) -> Array:
    """By which rounding moves each element of a result, at most: beyond all bounds where it makes a NaN of a number."""
    exact = reference.exact[key].astype(np.float64)
    moves = np.max([np.abs(run[key].astype(np.float64) - exact) for run in reference.disturbed], axis=0)
    return np.where(np.isfinite(exact), np.nan_to_num(moves, nan=np.inf), 0.0)


UNITS = 100.0
"""In the last place of the compute type, between the meaning of an op and torch in float64."""


def smallest(seed: int, device: str) -> str:
    """The text of the shortest beginning of a program that fails."""
    for ops in range(1, 100):
        program = nn_program(seed, ops)
        try:
            check_function(program, device)
        except Exception as error:  # noqa: BLE001 - whatever it fails with
            return f"{error}\n{to_text(program.module)}"
        if len(program.ops) < ops:
            break
    return to_text(nn_program(seed).module)
