"""One step of the device compared with the meaning of the model, and the stage at which the two begin to differ.

The device and the interpreter of the pure step get the same arguments, with hyperparameters that the step has not seen before.
If they disagree, the stages between them are interpreted too: the first that changes the meaning is named, or else the launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.plan import find_program
from aicf_mlir.dialects.scalar import bodies_of
from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.arithmetic import ROUNDED
from aicf_mlir.interpreters.kernel import meaning
from aicf_mlir.interpreters.numerics import FLOATS, NUMPY_TYPES, Array
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.roles import ARGUMENT_ROLES
from aicf_mlir.ir.signature import ArgumentIndex, argument_labels, result_labels
from aicf_mlir.ir.tensor_op import element_type
from aicf_mlir.runtime.certificate.replay import EAGER_POISON
from aicf_mlir.runtime.certificate.report import Culprit, FailedCheck
from aicf_mlir.runtime.certificate.subject import Saved, Subject, place_of, source_of
from aicf_mlir.runtime.certificate.tolerance import RUNS, disturbed, fault, perturbed
from aicf_mlir.runtime.program import Slot

MEANING = ("step", "nn")
"""The stages that define the computation of a step: model, gradients and optimizer, still pure; or the model alone."""

BETWEEN = ("lowered", "fused", "kernel")
"""The stages between the meaning and the plan."""

Key = tuple[str, str]
"""Role and name of a slot."""

SHOWN = 4


@dataclass(frozen=True)
class Interpreted:
    """A stage that was run on given arguments, and on perturbed ones."""

    results: dict[Key, Array]
    values: dict[SSAValue, Array]
    """Every value of the first run: the arguments, and the results of every op."""
    others: list[tuple[dict[Key, Array], dict[SSAValue, Array]]]

    def fault(self, key: Key, ours: Array) -> str | None:
        """Return the reason why `ours` is not the result `key`, or None."""
        runs = [results[key] for results, _ in self.others]
        expected = self.results[key]
        if key[1].endswith("_sq"):  # squares of rounding errors differ by more than a factor
            with np.errstate(invalid="ignore"):
                return fault(np.sqrt(ours), np.sqrt(expected), [np.sqrt(run) for run in runs])
        return fault(ours, expected, runs)

    def runs_of(self, value: SSAValue) -> list[Array]:
        """Return a value in the perturbed runs."""
        return [values[value] for _, values in self.others]


def check_reference(subject: Subject, start: Saved, steps: int) -> list[FailedCheck]:
    """Check up to two steps, each from the device's own state: the first step of an optimizer is unlike the others."""
    top = next(stage for stage in MEANING if stage in subject.stages)
    subject.restore(start)
    slots = {(slot.role, slot.name): slot for slot in subject.program.slots.values()}
    for i in range(min(steps, 2)):
        subject.perturb(i)
        before = subject.save()
        arguments = read_arguments(subject)
        subject.poison(EAGER_POISON)
        subject.run()
        status = subject.program.status
        if subject.anywhere(status is not None and bool(subject.read(status)[0])):
            message = "a check fails on this batch and its updates are skipped: nothing is proved; capture with one that trains"
            return [FailedCheck("reference", message)]
        expected = interpret(subject.stages[top], arguments)
        wrong = _wrong(expected, lambda key: subject.read(place_of(slots[key])))
        if subject.anywhere(bool(wrong)):
            if not wrong:
                return []  # another rank tells it
            where, culprit = (
                _locate(subject, before, arguments, top, expected) if subject.told is None else ("", None)
            )
            message = f"step {i + 1} is not what the model says: {wrong}{where}"
            if subject.plan_file is not None:
                message += f"; the plan is that of {subject.plan_file.origin}"
            return [FailedCheck("reference", message, culprit)]
    return _other_formulas(subject)


def _other_formulas(subject: Subject) -> list[FailedCheck]:
    """Return the computations for which an external plan uses other formulas, if this batch has not shown it."""
    comparison = subject.comparison
    if comparison is None or not comparison.results:
        return []
    message = (
        "with these values the step is what the model says, but not by its formulas: with others it may differ in "
        + ", ".join(comparison.results)
    )
    symbols = [launch.symbol for launch in subject.launch_ops]
    culprit = None if comparison.first is None else subject.culprit(symbols.index(comparison.first))
    return [FailedCheck("reference", message, culprit)]


def read_arguments(subject: Subject) -> dict[Key, Array]:
    """Return the values that the step is about to read, by role and name."""
    slots = subject.program.slots.values()
    return {(s.role, s.name): subject.read(place_of(s)) for s in slots if _is_argument(s)}


def _is_argument(slot: Slot) -> bool:
    return slot.role in ARGUMENT_ROLES


def _wrong(expected: Interpreted, ours: Callable[[Key], Array]) -> str:
    """Return the wrong results and their errors, or nothing."""
    faults = [
        f"{key[0]} {key[1]!r}: {why}" for key in expected.results if (why := expected.fault(key, ours(key)))
    ]
    more = f"; {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return "; ".join(faults[:SHOWN]) + more


def interpret(module: ModuleOp, arguments: Mapping[Key, Array]) -> Interpreted:
    """Run the function of a stage by the meaning of its ops."""
    function = next(op for op in module.ops if isinstance(op, func.FuncOp))
    labels = [(label.role or "input", label.name) for label in argument_labels(function)]
    index = ArgumentIndex(argument_labels(function))
    status = next((key for key in labels if key[0] == "status"), ("status", ""))
    keys = [
        labels[index.updated_by(label)[0]]
        if label.role == "update"
        else status
        if label.role == "status"
        else _result_key(label.role, label.name)
        for label in result_labels(function)
    ]
    types = [element_name(element_type(argument)) for argument in function.args]
    rng = np.random.default_rng(0)

    def run(seed: int | None) -> tuple[dict[Key, Array], dict[SSAValue, Array]]:
        shake = seed is not None
        inputs = [
            perturbed(arguments[key], dtype, rng) if shake and key[0] != "host_scalar" else arguments[key]
            for key, dtype in zip(labels, types, strict=True)
        ]
        values: dict[SSAValue, Array] = dict(zip(function.args, inputs, strict=True))

        def note(op: Operation, results: tuple[Array, ...]) -> None:
            if shake and narrows(op):  # an f32 step that computes in a smaller type rounds there, and by more
                (rounded,) = results
                rounded[...] = perturbed(rounded, element_name(element_type(op.results[0])), rng)
            values.update(zip(op.results, results, strict=True))

        arithmetic = ROUNDED if seed is None else disturbed(seed)
        results = run_function(module, inputs, arithmetic, after_each=note)
        return dict(zip(keys, results, strict=True)), values

    results, values = run(None)
    return Interpreted(results, values, [run(seed) for seed in range(RUNS)])


def narrows(op: Operation) -> bool:
    """True if `op` only rounds to a type of fewer bits."""
    if not isinstance(op, nn.CastOp):
        return False
    names = [element_name(element_type(value)) for value in (op.operands[0], op.results[0])]
    before, after = (NUMPY_TYPES[name].itemsize if name in FLOATS else 0 for name in names)
    return 0 < after < before


def _result_key(role: str, name: str) -> Key:
    return ("grad", name) if role == "grad" else ("output", name or role)


def _locate(
    subject: Subject, before: Saved, arguments: Mapping[Key, Array], top: str, expected: Interpreted
) -> tuple[str, Culprit | None]:
    """Return the stage, or the launch, at which the meaning changes; as the end of a message."""
    previous, above = top, expected
    for stage in (name for name in BETWEEN if name in subject.stages):
        here = interpret(subject.stages[stage], arguments)
        if _wrong(expected, here.results.__getitem__):
            index, op = _new_op(above, subject.stages[stage], here)
            where = f"; stage '{stage}' says something else than stage '{previous}'"
            if op is None:
                return where, None
            same = stage != "lowered" and subject.launch_ops[index].op.data == op.op_name
            return f"{where}, from {op.name} at {source_of(op)} on", subject.culprit(index) if same else None
        previous, above = stage, here
    if previous != "kernel":
        return "", None
    return _wrong_launch(subject, before, above, _kernel_ops(subject.stages["kernel"]))


def _kernel_ops(module: ModuleOp) -> list[KernelOp]:
    return [op for op in module.walk() if isinstance(op, KernelOp)]


def _new_op(above: Interpreted, module: ModuleOp, here: Interpreted) -> tuple[int, KernelOp | None]:
    """Return the first launch of a stage with a result that no value of the stage above has, in any shape."""
    for index, op in enumerate(_kernel_ops(module)):
        for result in op.results:
            ours = here.values[result].reshape(-1)
            alike = [value for value, array in above.values.items() if array.size == ours.size]
            if all(
                fault(ours, above.values[v].reshape(-1), [run.reshape(-1) for run in above.runs_of(v)])
                for v in alike
            ):
                return index, op
    return 0, None


def _wrong_launch(
    subject: Subject, before: Saved, expected: Interpreted, ops: list[KernelOp]
) -> tuple[str, Culprit | None]:
    """Run the launches one by one; return the first whose outputs differ from its op's in stage 'kernel'."""
    subject.restore(before)
    subject.poison(EAGER_POISON)
    missing = set(range(len(ops)))
    for index, launch in enumerate(subject.program.launches):
        op_name = subject.launch_ops[index].op.data
        inputs = [subject.read(place) for place in launch["inputs"]]
        subject.alone(index).run(subject.stream)
        outputs = [subject.read(place) for place in launch["outputs"]]
        place = subject.place_in_own_plan(index)
        if place is None or place >= len(ops):
            if place is not None and op_name in (
                "copy",
                "multi_tensor_map",
            ):  # bufferize adds these at the end
                continue
            return "; the plan has a launch that no op of stage 'kernel' stands for", subject.culprit(index)
        op = ops[place]
        missing.discard(place)
        if op.op_name != op_name:
            where = f"; the plan launches {op_name} where stage 'kernel' has {op.name} at {source_of(op)}"
            return where, subject.culprit(index)
        if len(op.results) != len(outputs):
            where = f"; a launch has {len(outputs)} results where {op.name} of stage 'kernel' has {len(op.results)}"
            return where, subject.culprit(index)
        for result, output in zip(op.results, outputs, strict=True):
            if (why := fault(output, expected.values[result], expected.runs_of(result))) is None:
                continue
            specs = [(place[2], tuple(place[3])) for place in launch["outputs"]]
            text = subject.launch_ops[index]
            known = bodies_of(find_program(subject.stages["plan"]))
            bodies = [known[symbol] for symbol in text.bodies]
            meant, *runs = (
                meaning(op_name, inputs, text.values, specs, arithmetic, text.counts, bodies)
                for arithmetic in (ROUNDED, *map(disturbed, range(RUNS)))
            )
            agrees = all(
                fault(ours, wanted, others) is None
                for ours, wanted, *others in zip(outputs, meant, *runs, strict=True)
            )
            reason = (
                "the plan gives it other operands, attributes or body"
                if agrees
                else "its kernel computes it wrongly"
            )
            return f"; a launch differs from its op in stage 'kernel' ({why}): {reason}", subject.culprit(
                index
            )
    if missing:
        op = ops[min(missing)]
        return f"; no launch stands for {op.name} of stage 'kernel' at {source_of(op)}", None
    return "; each launch alone is right, so a later one overwrites what is still needed", None
