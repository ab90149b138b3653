"""The step as a graph of ATen ops: torch.export on `loss_fn(model, batch)`, functional, composites whole.

Only the public route is used: `torch.export.export(…, strict=False).run_decompositions({})`. Nothing runs on the
device, and the model is left unchanged, including attributes that its `forward` sets.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from types import CodeType
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.fx import Node

from aicf_mlir.errors import AicfError
from aicf_mlir.frontend import grad_modes, source
from aicf_mlir.frontend.batch_strides import Batch, needs_dense, reads_layouts
from aicf_mlir.frontend.batched import levels_restored
from aicf_mlir.frontend.calls import Calls, first_difference
from aicf_mlir.frontend.carried import FAR, Carried, put_back, put_forth
from aicf_mlir.frontend.composites import seen_by_autocast, typed_by_autocast
from aicf_mlir.frontend.contents import equal
from aicf_mlir.frontend.effects import EFFECT, has_effect
from aicf_mlir.frontend.example import LossFunction, TensorSpec, zeros
from aicf_mlir.frontend.exported_step import ExportedStep
from aicf_mlir.frontend.gradient_cuts import cut_as_torch
from aicf_mlir.frontend.hooked_uses import expect_all_pass
from aicf_mlir.frontend.kept_whole import made_ready
from aicf_mlir.frontend.mask_hints import without_mask_hints
from aicf_mlir.frontend.precision import Precision
from aicf_mlir.frontend.quiet import quiet
from aicf_mlir.frontend.recorder import Recorder, value_read
from aicf_mlir.frontend.restated import restated
from aicf_mlir.frontend.source import is_users_file, quoted, trace_error
from aicf_mlir.frontend.step_module import StepModule
from aicf_mlir.frontend.structure import Structure
from aicf_mlir.frontend.torch_errors import explained
from aicf_mlir.frontend.type_tests import refuse_type_tests
from aicf_mlir.ir.locations import SourceLocation

PYTHON = ("_operator", "math", "torch")
"""The modules of functions of numbers; of tuples only `getitem`."""


def export(
    model: torch.nn.Module,
    function: LossFunction,
    specs: Mapping[str, TensorSpec],
    fallback: SourceLocation | None,
    structure: Structure | None = None,
    recorder: Recorder | None = None,
    *,
    updates_parameters: bool = False,
    trains: bool = True,
    precision: Precision | None = None,
    names: Mapping[int, str] | None = None,
    numbers: Sequence[torch.Tensor] = (),
    hooks: frozenset[CodeType] = frozenset(),
    parts: Sequence[torch.nn.Module] = (),
) -> ExportedStep:
    """Export the step `function(model, batch)` for batches of `specs`; `fallback` is the line for ops without one.

    The batch is nested as `structure` says; without one it is a dictionary of tensors. `updates_parameters`: the
    function itself does; `trains`: a gradient follows. Model and loss compute in `precision`. `names`: the user's names
    of modules, by their ids; `numbers`: 0-d tensors that replace Python numbers; `hooks`: the code of forward hooks.
    `parts`: modules besides the model of which the function updates buffers. Raises TraceError, with the user's file and line,
    for all that the model, the loss, the `recorder` or torch.export reject.
    """
    step = StepModule(
        model,
        function,
        list(specs),
        structure,
        recorder,
        updates_parameters=updates_parameters,
        trains=trains,
        precision=precision,
        paths=names,
        numbers=numbers,
        hooks=hooks,
        parts=parts,
    )
    with step.undone:
        program = _judged(step, specs, fallback)
        tensors = {
            path: tensor
            for named in (step.named_parameters, step.named_buffers)
            for path, tensor in named(remove_duplicate=False)
        }
        exported = ExportedStep(
            program,
            tuple(specs),
            tuple(step.outputs),
            tensors,
            step.recorder,
            step.places.all,
            fallback,
            needs_dense=step.needs_dense,
        )
        expect_all_pass(exported, {path: tensors[path] for path in step.gradient_hooks})
        with step.undone.seen():
            return cut_as_torch(exported)


def _judged(
    step: StepModule, specs: Mapping[str, TensorSpec], fallback: SourceLocation | None
) -> ExportedProgram:
    """Return the graph of `step`, if its next call would give the same one; afterwards Python's state is restored.

    Raises TraceError with the place that a call changes and computes with.
    """
    before = [_call(step, specs)]
    if step.written:  # the first call did not know them
        before = [_call(step, specs)]
    if before[0] is not None and before[0].of_users_code:  # torch's code alone does the same each time
        before.append(_call(step, specs))
    program = _program(step, specs, fallback)
    ran = (place.owner for place in step.places.all if place.kind == "code")
    refuse_type_tests(ran, lambda: _call(step, specs))
    first = step.carried
    first.refuse_opaque(step.paths)
    step.expect_no_effects()
    if first.plain:
        _settle(program, step, specs, fallback)
    _refuse_another_call(before, step, specs, fallback)
    if before[0] is not None and reads_layouts(before[0]):
        step.needs_dense = needs_dense(lambda batch, sought: _call(step, specs, sought, batch), fallback)
    return program


def _settle(
    program: ExportedProgram,
    step: StepModule,
    specs: Mapping[str, TensorSpec],
    fallback: SourceLocation | None,
) -> None:
    """Trace `step` again from the state that its first call left. Raises TraceError if the step differs, or keeps
    changing.
    """
    first = step.carried
    again = step

    def is_same(move: Callable[[], None]) -> Carried | None:
        nonlocal again
        again = step.anew()
        put_forth(first.others)
        move()
        try:
            other = _program(again, specs, fallback)
        except AicfError:
            return again.carried if first.tables else None  # a flag may claim a table that is missing
        finally:
            put_back(first.others)
        return again.carried if are_same(program, other) else None

    second = is_same(lambda: None)
    if second is None or second.opaque or second.hidden:
        raise first.refusal(step.paths, is_once=not again.carried.plain)
    if not second.is_settled and not (
        second.are_numbers and first.are_numbers and is_same(lambda: first.move_on(FAR))
    ):
        raise first.refusal(step.paths, second)
    if not step.updates_parameters:  # a loop body has its counts kept
        first.tell_counts(step.paths)


def are_same(one: ExportedProgram, other: ExportedProgram) -> bool:
    """True if two graphs are the same, with equal constants."""
    ours, theirs = cast(Mapping[str, Any], one.constants), cast(Mapping[str, Any], other.constants)
    return one.graph_module.code == other.graph_module.code and all(
        value is theirs.get(name) or equal(value, theirs[name]) for name, value in ours.items()
    )


def _refuse_another_call(
    made: Sequence[Calls | None],
    step: StepModule,
    specs: Mapping[str, TensorSpec],
    fallback: SourceLocation | None,
) -> None:
    """Raise TraceError if calls differ though every Python place is restored between them: C keeps state."""
    one, other = made[0], made[-1]
    if one is None or other is None or (number := first_difference(one.made, other.made)) is None:
        return
    name, _ = max(one.made, other.made, key=len)[number]
    sought = _call(step, specs, number)
    location = (sought and sought.location) or fallback
    raise trace_error(
        f"the step computes something else at its second call: first {name}{quoted(location)}; a compiled step runs no Python and"
        " would repeat the first call: keep what changes in a buffer of the model (register_buffer), or give it in the batch"
        " or by meta=",
        location,
    )


def _call(
    step: StepModule, specs: Mapping[str, TensorSpec], sought: int | None = None, batch: Batch = zeros
) -> Calls | None:
    """Return the calls that `step` computes; None if it raises. `sought`: the function whose line to find."""
    again = step.anew()
    try:
        with (
            levels_restored(),
            again.restored(),
            _without_graph(again, specs, batch) as (call, written, *given),
            (made := Calls(chain(*given), sought, always_copies=batch is not zeros)),
        ):
            made.end(call())
        again.written |= written()
    except Exception:  # noqa: BLE001 - the export went through, so it is no fault of the step
        return None
    step.written |= again.written
    made.of_users_code = any(
        place.kind == "code" and is_users_file(place.owner.__code__.co_filename) for place in again.places.all
    )
    return made


def _program(
    step: StepModule, specs: Mapping[str, TensorSpec], fallback: SourceLocation | None
) -> ExportedProgram:
    """Export the graph of a step by torch.export."""
    try:
        with (
            quiet(),
            without_mask_hints(),
            restated(),
            levels_restored(),
            typed_by_autocast(),
            grad_modes.noted(step.recorder.frozen_now),
            step.restored(),
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


def result_of(
    model: torch.nn.Module,
    function: LossFunction,
    specs: Mapping[str, TensorSpec],
    fallback: SourceLocation | None,
) -> torch.Tensor:
    """Return the result of `function(model, batch)` for batches of `specs`, without data: shape, dtype and device.

    Like torch.export it calls the function with fake tensors in place of the model's, but keeps no graph, which is most
    of the work of an export. If that fails the step is exported, to raise the errors of an export.
    """
    step = StepModule(model, function, list(specs))
    try:
        with step.restored(), _without_graph(step, specs) as (call, *_):
            return call()[0]
    except Exception:  # noqa: BLE001 - whatever it is, torch.export meets it too
        return export(model, function, specs, fallback).result.meta["val"]


@contextmanager
def _without_graph(
    step: StepModule, specs: Mapping[str, TensorSpec], made: Batch = zeros
) -> Generator[
    tuple[
        Callable[[], tuple[torch.Tensor, ...]],
        Callable[[], set[str]],
        list[torch.Tensor],
        list[torch.Tensor],
    ]
]:
    """Yield a call of `step` for batches of `specs` by fake tensors, the paths of parameters and buffers that it has
    written to, parameters and batch, and buffers.
    """
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with (
        step.undone,
        step.undone.seen_in_calls(),
        quiet(),
        without_mask_hints(),
        restated(),
        _attributes_restored(step),
        step.held.once(),
        torch.enable_grad(),
        fake,
    ):
        parameters, buffers = (
            {path: fake.from_tensor(tensor) for path, tensor in named}
            for named in (step.named_parameters(), step.named_buffers())
        )
        batch = tuple(made(specs).values())
        held: dict[str, torch.Tensor] = {**parameters, **buffers}
        versions = {path: tensor._version for path, tensor in held.items()}
        yield (
            lambda: torch.func.functional_call(step, held, batch),
            lambda: {path for path, tensor in held.items() if tensor._version != versions[path]},
            [*parameters.values(), *batch],
            [*buffers.values()],
        )


def is_functional(program: ExportedProgram) -> bool:
    """True if the graph of `program` has plain ops only: none that writes to a tensor, none with a graph inside."""
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    ops = [node for node in calls if node.target.__module__ not in PYTHON]
    return all(isinstance(node.target, OpOverload) and not has_effect(node) for node in ops)


def decompose(program: ExportedProgram, decompositions: dict[Any, Any]) -> ExportedProgram:
    """Return `program` without mutation, and with the given ops replaced by their decompositions."""
    _give_own_values(program)
    try:
        with quiet(), seen_by_autocast(program), made_ready(), levels_restored():
            return program.run_decompositions(decompositions)  # pyright: ignore[reportUnknownMemberType]
    except Exception as error:
        raise explained(error, source.here()) from error


def _give_own_values(program: ExportedProgram) -> None:
    """Let each `copy_` in `program` write a value of its own: torch cannot name one value as that of two buffers."""
    for node in program.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        source = cast(Node, node.args[1])
        with program.graph.inserting_before(node):
            own = program.graph.call_function(torch.ops.aten.clone.default, (source,))
        own.meta = {key: value for key, value in source.meta.items() if key != EFFECT}
        node.update_arg(1, own)
    program.graph_module.recompile()


@contextmanager
def _attributes_restored(step: torch.nn.Module) -> Generator[None]:
    """Undo the assignments of `forward` to modules: the values would be the tracer's."""
    saved = [(module, dict(vars(module))) for module in step.modules()]
    try:
        yield
    finally:
        for module, attributes in saved:
            vars(module).clear()
            vars(module).update(attributes)
