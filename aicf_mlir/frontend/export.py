"""The step as a graph of ATen ops: torch.export on `loss_fn(model, batch)`, functional, composites whole.

The public route only: `torch.export.export(…, strict=False).run_decompositions({})`. Nothing runs on the
device, and the model is left as it was, attributes that its `forward` sets included.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, pairwise
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram

from aicf_mlir.errors import AicfError
from aicf_mlir.frontend import grad_modes, kept, source
from aicf_mlir.frontend.alternatives import FURTHER, alternatives
from aicf_mlir.frontend.calls import Calls, first_difference
from aicf_mlir.frontend.composites import seen_by_autocast, typed_by_autocast
from aicf_mlir.frontend.counted import Counters, Left, differing
from aicf_mlir.frontend.effects import has_effect
from aicf_mlir.frontend.example import LossFunction, TensorSpec, zeros
from aicf_mlir.frontend.exported_step import ExportedStep
from aicf_mlir.frontend.gradient_cuts import cut_as_torch
from aicf_mlir.frontend.mask_hints import without_mask_hints
from aicf_mlir.frontend.precision import Precision
from aicf_mlir.frontend.quiet import quiet
from aicf_mlir.frontend.reached import collect
from aicf_mlir.frontend.recorder import Recorder, value_read
from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.frontend.step_module import StepModule
from aicf_mlir.frontend.structure import Structure
from aicf_mlir.frontend.torch_errors import explained
from aicf_mlir.ir.locations import SourceLocation

PYTHON = ("_operator", "math", "torch")
"""Where functions of numbers come from; of tuples `getitem`."""


def export(
    model: torch.nn.Module,
    function: LossFunction,
    specs: Mapping[str, TensorSpec],
    fallback: SourceLocation | None,
    structure: Structure | None = None,
    recorder: Recorder | None = None,
    *,
    updates_parameters: bool = False,
    precision: Precision | None = None,
) -> ExportedStep:
    """
    The step `function(model, batch)` for batches of `specs`; `fallback` is the line for ops without one.

    The batch is nested as `structure` says; without one it is a dictionary of tensors. `updates_parameters`: the function
    itself does. Model and loss compute in `precision`.
    Raises TraceError, with the user's file and line, for whatever the model, the loss, the `recorder` or torch.export
    objects to.
    """
    step = StepModule(
        model,
        function,
        list(specs),
        structure,
        recorder,
        updates_parameters=updates_parameters,
        precision=precision,
    )
    counters = Counters(model, function)
    step.watch(counters)
    before = _calls(step, specs, counters, 1) if counters.of_users_code else []
    with counters.restored():
        program = _program(step, specs, fallback)
        left = [*step.found, *(each for each in counters.left() if each.is_traced)]
    _refuse_what_goes_on(program, step, specs, counters, left, fallback)
    if counters.of_users_code:
        _refuse_another_call(before, step, specs, counters, fallback)
    for each in left:
        if each.is_in_place and not each.is_traced:  # a log of what was called, say
            each.read.put_back(each.after)
    tensors = {
        path: tensor
        for named in (step.named_parameters, step.named_buffers)
        for path, tensor in named(remove_duplicate=False)
    }
    exported = ExportedStep(
        program, tuple(specs), tuple(step.outputs), tensors, step.recorder, step.reads, fallback
    )
    return cut_as_torch(exported)


def _refuse_what_goes_on(
    program: ExportedProgram,
    step: StepModule,
    specs: Mapping[str, TensorSpec],
    counters: Counters,
    left: Sequence[Left],
    fallback: SourceLocation | None,
) -> None:
    """
    Raise TraceError where the next call of `step` would be another one than `program`; what does not matter may change.

    `left`: what its trace has left somewhere.
    """

    def is_same(when_it_fails: bool = False) -> bool:
        with counters.restored():
            return _is_same(program, step, specs, fallback, when_it_fails)

    if step.left or any(each.is_traced for each in left):
        found, tables = _kept(step.anew(), specs, counters, left)
        if found:
            raise kept.error(step.model, found)
        left = [each for each in left if each not in tables]
    if step.flags:
        with counters.at(step.flags):
            same = is_same(when_it_fails=True)  # a cache that is there, the flag says, and is not
        if not same:
            counters.refuse(step.flags)
    if step.moved and (moving := step.moved & _moving(step.anew(), specs, counters)):
        for number in FURTHER:
            with counters.at(counters.further(moving, number)):
                same = is_same()
            if not same:
                counters.refuse(moving)
    if left:
        for each in left:
            each.read.put_back(each.after)
        if not is_same():
            counters.refuse_left(left[0])
        for each in left:
            for other in alternatives(each.read, each.before, each.after):
                each.read.put_back(other)
                if not is_same():
                    counters.refuse_changed(each)


def _refuse_another_call(
    before: Sequence[Calls],
    step: StepModule,
    specs: Mapping[str, TensorSpec],
    counters: Counters,
    fallback: SourceLocation | None,
) -> None:
    """
    Raise TraceError where two calls differ though every place that is known is put back between them.

    One is `before` the trace, two are behind it: what the first call alone does differs as well as what each does by turns.
    """
    made = [calls.made for calls in (*before, *_calls(step, specs, counters, 2))]
    one, other, number = next(
        (
            (one, other, number)
            for one, other in pairwise(made)
            if (number := first_difference(one, other)) is not None
        ),
        ((), (), None),
    )
    if number is None:
        return
    collect(step.model, step.function, step.reads, {})  # which refuses what it finds to be an iterator
    name, _ = max(one, other, key=len)[number]
    location = _calls(step, specs, counters, 1, number)[0].location or fallback
    raise trace_error(
        f"the step computes something else at its second call: first {name}{quoted(location)}; a compiled step runs no Python and"
        " would repeat the first call: keep what changes in a buffer of the model (register_buffer), or give it in the batch"
        " or by meta=",
        location,
    )


def _calls(
    step: StepModule,
    specs: Mapping[str, TensorSpec],
    counters: Counters,
    times: int,
    sought: int | None = None,
) -> list[Calls]:
    """What so many calls of `step` compute, as far as one goes that raises; `sought`: of which function to find the line."""
    made: list[Calls] = []
    with suppress(Exception):
        for _ in range(times):
            with counters.restored(), _without_graph(step.anew(), specs) as (call, *given):
                made.append(Calls(chain(*given), sought))
                with made[-1] as calls:
                    calls.end(call())
    return made


def _program(
    step: StepModule, specs: Mapping[str, TensorSpec], fallback: SourceLocation | None
) -> ExportedProgram:
    """The graph of a step by torch.export."""
    try:
        with (
            quiet(),
            without_mask_hints(),
            typed_by_autocast(),
            grad_modes.noted(),
            _attributes_restored(step),
            step.held.once(),
            torch.enable_grad(),
        ):
            return torch.export.export(step, tuple(zeros(specs).values()), strict=False)
    except AicfError:
        raise
    except Exception as error:
        location = source.of_traceback(error.__traceback__) or fallback
        if "DataDependent" in type(error).__name__:
            raise value_read("depends on the value of a tensor", location) from error
        raise explained(error, location) from error


def _is_same(
    program: ExportedProgram,
    step: StepModule,
    specs: Mapping[str, TensorSpec],
    fallback: SourceLocation | None,
    when_it_fails: bool,
) -> bool:
    """Whether another trace of `step` computes the same; one may fail, as by an index that is too large."""
    try:
        other = _program(step.anew(), specs, fallback)
    except AicfError:
        return when_it_fails
    ours, theirs = cast(Mapping[str, Any], program.constants), cast(Mapping[str, Any], other.constants)
    return program.graph_module.code == other.graph_module.code and all(
        value is theirs.get(name) or torch.equal(value, theirs[name]) for name, value in ours.items()
    )


def result_of(
    model: torch.nn.Module,
    function: LossFunction,
    specs: Mapping[str, TensorSpec],
    fallback: SourceLocation | None,
) -> torch.Tensor:
    """
    What `function(model, batch)` returns for batches of `specs`, without data: shape, dtype and device.

    Like torch.export it calls the function with fake tensors in place of the model's, but keeps no graph, which is
    most of the work of an export. Where that fails the step is exported, for what that refuses and how.
    """
    step = StepModule(model, function, list(specs))
    counters = Counters(model, function)
    step.watch(counters)
    try:
        with counters.restored(), _without_graph(step, specs) as (call, *_):
            return call()[0]
    except Exception:  # noqa: BLE001 - whatever it is, torch.export meets it too
        return export(model, function, specs, fallback).result.meta["val"]


def _moving(step: StepModule, specs: Mapping[str, TensorSpec], counters: Counters) -> set[Hashable]:
    """
    The places of numbers that a call changes where one was before it: a cache that the first call fills is none.

    All that have moved, where the step does not run by fake tensors.
    """
    try:
        with counters.restored(), _without_graph(step, specs) as (call, *_):
            call()
            before = counters.now()
            call()
            return differing(before, counters.now())
    except Exception:  # noqa: BLE001 - the export went through, so it is no fault of the step
        return counters.moved() | step.moved


def _kept(
    step: StepModule, specs: Mapping[str, TensorSpec], counters: Counters, left: Sequence[Left]
) -> tuple[Collection[kept.Attribute], Collection[Left]]:
    """
    The attributes in which a call finds what the one before has computed and left there; and which of `left` are tables.

    A table is what each call would compute alike, as of positions: no call misses it.
    """
    try:
        with counters.restored(), _without_graph(step, specs) as (call, changing, buffers):
            before = kept.attributes(step.model)
            with kept.Followed(changing, buffers) as followed:
                call()
            tables = [each for each in left if each.is_traced and not followed.varies(each.read.value())]
            after = kept.replaced(before, kept.attributes(step.model))
            step.reads = reads = kept.Kept(
                {place: value for place, value in after.items() if followed.varies(value)}
            )
            call()
            return reads.found, tables
    except Exception:  # noqa: BLE001 - the export went through, so it is no fault of the step
        return (), ()


@contextmanager
def _without_graph(
    step: StepModule, specs: Mapping[str, TensorSpec]
) -> Generator[tuple[Callable[[], tuple[torch.Tensor, ...]], list[torch.Tensor], list[torch.Tensor]]]:
    """A call of `step` for batches of `specs` by fake tensors, its parameters and batch, and its buffers."""
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with (
        quiet(),
        without_mask_hints(),
        _attributes_restored(step),
        step.held.once(),
        torch.enable_grad(),
        fake,
    ):
        parameters, buffers = (
            {path: fake.from_tensor(tensor) for path, tensor in held}
            for held in (step.named_parameters(), step.named_buffers())
        )
        batch = tuple(zeros(specs).values())
        yield (
            lambda: torch.func.functional_call(step, {**parameters, **buffers}, batch),
            [*parameters.values(), *batch],
            [*buffers.values()],
        )


def is_functional(program: ExportedProgram) -> bool:
    """Whether the graph of `program` has plain ops only: none that writes to a tensor, none with a graph inside."""
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    ops = [node for node in calls if node.target.__module__ not in PYTHON]
    return all(isinstance(node.target, OpOverload) and not has_effect(node) for node in ops)


def decompose(program: ExportedProgram, decompositions: dict[Any, Any]) -> ExportedProgram:
    """`program` without mutation, and with the given ops replaced by their decompositions."""
    try:
        with quiet(), seen_by_autocast(program):
            return program.run_decompositions(decompositions)  # pyright: ignore[reportUnknownMemberType]
    except Exception as error:
        raise explained(error, source.here()) from error


@contextmanager
def _attributes_restored(step: torch.nn.Module) -> Generator[None]:
    """Undo what `forward` assigns to modules: the values would be those of the tracer."""
    saved = [(module, dict(vars(module))) for module in step.modules()]
    try:
        yield
    finally:
        for module, attributes in saved:
            vars(module).clear()
            vars(module).update(attributes)
