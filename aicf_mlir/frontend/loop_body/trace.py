"""`trace_loop`: the body of a training loop becomes one function of the nn and train dialects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Attribute

from aicf_mlir.dialects.optimizer_groups import OPTIMIZER
from aicf_mlir.errors import AicfError
from aicf_mlir.frontend import source
from aicf_mlir.frontend.bindings import bind
from aicf_mlir.frontend.carried import key_of
from aicf_mlir.frontend.example import batch_specs
from aicf_mlir.frontend.export import are_same, export
from aicf_mlir.frontend.exported_step import ExportedStep
from aicf_mlir.frontend.loop_body.after import Call
from aicf_mlir.frontend.loop_body.body import LoopBody, LoopRun
from aicf_mlir.frontend.loop_body.found import expect_scalers
from aicf_mlir.frontend.loop_body.importer import GradientLeft, LoopImporter
from aicf_mlir.frontend.loop_body.python_state import KeptPlace, NewPlaces
from aicf_mlir.frontend.loop_body.returned import Returned
from aicf_mlir.frontend.loop_body.scalers import reads_of
from aicf_mlir.frontend.metrics import Metrics
from aicf_mlir.frontend.model import code_of_hooks, device_of, modules_of, refuse_hooks, tensor_names
from aicf_mlir.frontend.one_at_a_time import one_at_a_time
from aicf_mlir.frontend.optimizer import describe, rule_of, trained_parameters
from aicf_mlir.frontend.places import PlaceNames
from aicf_mlir.frontend.precision import Precision
from aicf_mlir.frontend.random_state import RandomState
from aicf_mlir.frontend.reached import collect, values_read
from aicf_mlir.frontend.reads import Read
from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.frontend.structure import Batch
from aicf_mlir.frontend.traced_optimizer import OptimizerTrace, trace_optimizer
from aicf_mlir.frontend.tracing import Traced, paths_of, refuse_surroundings, symbol
from aicf_mlir.frontend.unsupported import with_decompositions
from aicf_mlir.frontend.values import shown
from aicf_mlir.ir.signature import steps


@dataclass(frozen=True)
class LoopTraced(Traced):
    """The result of the front end for a loop body."""

    returned: Returned = field(default_factory=Returned)
    calls: Sequence[Call] = ()
    """What Python does after each step."""

    opening: Sequence[Call] = ()
    """What Python does before each step."""

    kept: Sequence[KeptPlace] = ()
    """The places around the body that hold numbers before each step, or other values after it."""

    taken: Mapping[str, Sequence[str]] = field(default_factory=dict[str, list[str]])
    """The outputs that are true if a step of an optimizer is taken, with the names of its parameters."""

    @property
    def stepped(self) -> list[LRScheduler]:
        """The schedulers that it steps, in their order."""
        return [call.owner for call in self.calls if isinstance(call.owner, LRScheduler)]

    def followed_by(self, now: Traced) -> Traced:
        assert isinstance(now, LoopTraced)
        ours, theirs = [*self.opening, *self.calls], [*now.opening, *now.calls]
        is_same = (len(self.opening), len(ours)) == (len(now.opening), len(theirs)) and all(
            a.is_like(b) for a, b in zip(ours, theirs, strict=True)
        )
        if is_same and self.returned.is_like(now.returned) and list(self.kept) == list(now.kept):
            return self
        return replace(self, returned=now.returned, calls=now.calls, opening=now.opening, kept=now.kept)


@one_at_a_time
def trace_loop(
    body: LoopBody,
    example: Batch,
    *,
    name: str,
    host_values: Mapping[torch.Tensor, str],
    random: RandomState,
    metrics: Metrics,
    precision: Precision,
) -> LoopTraced:
    """Trace one call of `body` on a batch like `example`; all of it computes in `precision`.

    Raises TraceError, with the user's file and line if known. Nothing runs, and nothing of the model changes.
    """
    with _as_parameters(body.model.parameters()):
        return _trace(
            body,
            example,
            name=name,
            host_values=host_values,
            random=random,
            metrics=metrics,
            precision=precision,
        )


def _trace(
    body: LoopBody,
    example: Batch,
    *,
    name: str,
    host_values: Mapping[torch.Tensor, str],
    random: RandomState,
    metrics: Metrics,
    precision: Precision,
) -> LoopTraced:
    body.left = dict.fromkeys(body.model.parameters(), True)
    body.constants = []
    caller = source.of_function(body.function) or source.here()
    refuse_surroundings(caller)
    expect_scalers(body.function, body.scalers)
    modules = modules_of(body.model, body.function)
    names = {**tensor_names(modules), **host_values}
    refuse_hooks(modules, names)
    precision.check(names)
    trained = {p for optimizer in body.optimizers.values() for p in trained_parameters(optimizer, names)}
    specs, structure = batch_specs(example, device_of(names, None))
    is_whole = type(body.model) is not torch.nn.Module
    paths = paths_of({key: root for key, root in modules.items() if key or is_whole}, body.function)

    def exported_once(run: LoopRun) -> ExportedStep:
        with body.state.numbers_in():
            step = export(
                body.model,
                run,
                specs,
                caller,
                structure,
                run.recorder,
                updates_parameters=True,
                precision=precision,
                names=paths,
                numbers=list(host_values),
                hooks=code_of_hooks(modules),
            )
        if run.unreturned is not None:
            raise run.unreturned
        return step

    while True:
        run, exported = _followed(body, exported_once)
        if not run.never_left:
            break
        _expect_none(run.never_left, names, caller)  # for the run without left gradients
        body.left.update(dict.fromkeys(run.never_left, False))

    _expect_constant(body.constants, caller)
    _expect_same_next(body, exported, exported_once)
    _expect_same_frozen(body, run, exported, exported_once)
    for param in (p for o in body.optimizers.values() for group in o.param_groups for p in group["params"]):
        if id(param) in run.recorder.freed and not param.requires_grad:
            raise trace_error(
                f"the loop body lets {names[param]!r} require a gradient, which it does not as it is compiled; call"
                " requires_grad_() before",
                caller,
            )

    def build(step: ExportedStep) -> tuple[LoopImporter, ModuleOp]:
        bindings = bind(step, names, trained, writes_parameters=True)
        importer = LoopImporter(step, bindings, specs, symbol(name), random, metrics)
        return importer, importer.run()

    try:
        importer, module = with_decompositions(exported, build)
    except GradientLeft as left:
        raise trace_error(
            f"the loop body adds to the gradient of {left.name!r} that an earlier call has left{quoted(left.location)}; call"
            " opt.zero_grad() before backward(), or behind step(), without set_to_none=False",
            left.location,
        ) from None
    precision.mark(module)
    tensors = {b.name: b.tensor for b in importer.bound}
    by_hand = [each for each in importer.written if tensors[each] in trained]
    if not importer.updated and by_hand:
        kinds = ", ".join(dict.fromkeys(type(each).__name__ for each in body.optimizers.values()))
        raise trace_error(
            f"the loop body writes to {by_hand[0]!r} itself, and steps no optimizer though it reaches one ({kinds}); keep the"
            " optimizer out of what the body reads, or step it",
            caller,
        )
    if not importer.updated and (body.optimizers or not importer.written):
        raise trace_error(
            "the loop body steps no optimizer and writes to no parameter, so it trains nothing; if it does so at every k-th call,"
            " give one call k parts of a batch (for x, t in zip(x.chunk(k), t.chunk(k)))",
            caller,
        )
    structure = replace(structure, needs_dense=exported.needs_dense)
    parameters: dict[str, Any] = {b.name: b.tensor for b in importer.bound if b.tensor in trained}
    buffers = {name: tensor for name, tensor in tensors.items() if name not in parameters}
    written = _optimize(body, module, {tensors[each]: each for each in importer.updated}, names, caller)
    numbers = body.state.number_keys
    places = [place for place in exported.places if key_of(place) not in numbers]
    body.state.settle(exported.places, PlaceNames(exported.places, paths))
    reads = [*collect(places, paths), *values_read(exported, names, paths)]
    reads += body.state.reads()
    reads += [
        Read(f"{names[param]}.grad", "slot", param, "grad", may_be_host_scalar=False)
        for param, left in body.left.items()
        if not left
    ]
    reads += [read for traced in written for read in traced.reads]
    reads += [read for name, scaler in body.scalers.items() for read in reads_of(name, scaler)]
    ids = {id(tensor): name for name, tensor in tensors.items()}
    taken = {output: [ids[each] for each in params if each in ids] for output, params in run.taken.items()}
    return LoopTraced(
        module,
        parameters,
        buffers,
        specs,
        structure,
        reads,
        written,
        run.returned,
        tuple(run.calls),
        tuple(run.opening),
        body.state.places,
        taken,
    )


def _followed(body: LoopBody, exported: Callable[[LoopRun], ExportedStep]) -> tuple[LoopRun, ExportedStep]:
    """Return a run whose Python state is followed around the step, and what it exports."""
    body.state.begin()
    while True:
        run = body.run()
        try:
            return run, exported(run)
        except NewPlaces:
            body.constants = []
        except AicfError:
            if not body.state.gives_up():
                raise
            body.constants = []


def _expect_same_next(
    body: LoopBody, step: ExportedStep, exported: Callable[[LoopRun], ExportedStep]
) -> None:
    """Raise TraceError if the body computes with a value that it changes itself: the next call would be another step."""
    moves = [] if body.is_traced else body.state.moves(step.places)
    body.is_traced = True  # a later trace is compared with the compiled step
    if not moves:
        return
    constants = body.constants
    with body.state.moved(moves):
        try:
            _, other = _followed(body, exported)
            is_same = are_same(step.program, other.program)
        except AicfError:
            is_same = False
    body.constants = constants
    if not is_same:
        place, _ = moves[0]
        raise trace_error(
            f"the step changes {place.name}, from {shown(place.content())}, at a call, and computes with it; a compiled step runs"
            " no Python and would repeat the first call: count in a tensor (register_buffer), or outside of the step",
            source.of_function(body.function),
        )


def _expect_same_frozen(
    body: LoopBody, run: LoopRun, step: ExportedStep, exported: Callable[[LoopRun], ExportedStep]
) -> None:
    """Raise TraceError if the body leaves `requires_grad` of parameters, as that of a discriminator, so that its next call
    would be another step. A compiled step leaves it as it is.
    """
    if not run.recorder.frozen:
        return
    constants = body.constants
    for param, needs in run.recorder.frozen.items():
        param.requires_grad_(needs)
    try:
        other_run, other = _followed(body, exported)
        is_same = not other_run.recorder.frozen and are_same(step.program, other.program)
    except AicfError:
        is_same = False
    finally:
        for param, needs in run.recorder.frozen.items():
            param.requires_grad_(not needs)
        body.constants = constants
    if not is_same:
        raise trace_error(
            "the loop body leaves requires_grad of a parameter other than it found it, and its next call would be another step;"
            " set it at the beginning of the body too, or set it back before it ends",
            source.of_function(body.function),
        )


def _optimize(
    body: LoopBody,
    module: ModuleOp,
    updated: Mapping[torch.Tensor, str],
    names: Mapping[torch.Tensor, str],
    caller: source.SourceLocation | None,
) -> list[OptimizerTrace]:
    """Add the update of each param group to the function; optimizers that no rule describes get private functions."""
    (step,) = steps(module)
    owners = Counter(
        param
        for optimizer in body.optimizers.values()
        for g in optimizer.param_groups
        for param in g["params"]
    )
    for tensor, name in updated.items():
        if (count := owners[tensor]) > 1:
            raise trace_error(
                f"the loop body trains {name!r} by {count} optimizers, which is not supported; give each its own parameters",
                caller,
            )
    rows: list[Attribute] = []
    written: list[OptimizerTrace] = []
    for optimizer in body.optimizers.values():
        if rule_of(optimizer) is not None:
            rows += describe(optimizer, updated).data
            continue
        if not any(param in updated for group in optimizer.param_groups for param in group["params"]):
            raise trace_error(
                f"the loop body reaches the optimizer {type(optimizer).__name__}, which no rule describes, and does not step it;"
                " keep it out of what the body reads",
                caller,
            )
        name = f"{step.sym_name.data}_update{len(written) or ''}"
        traced = trace_optimizer(optimizer, updated, name, device_of(names, None), len(rows))
        rows += [group.to_attribute() for group in traced.groups]
        module.body.block.add_op(traced.function)
        written.append(traced)
    step.attributes[OPTIMIZER] = ArrayAttr(rows)
    return written


@contextmanager
def _as_parameters(tensors: Iterable[torch.Tensor]) -> Generator[None]:
    """Let torch.export accept leaves that are no nn.Parameter, as SAC's `log_alpha`, as parameters."""
    plain = [tensor for tensor in tensors if not isinstance(tensor, torch.nn.Parameter)]
    for tensor in plain:
        vars(tensor)["_is_param"] = True
    try:
        yield
    finally:
        for tensor in plain:
            vars(tensor).pop("_is_param", None)


def _expect_constant(runs: Sequence[Sequence[tuple[str, str]]], caller: source.SourceLocation | None) -> None:
    """Raise TraceError if two runs have returned different constants, as times are."""
    for run in runs:
        for (path, value), (_, other) in zip(runs[0], run, strict=False):
            if value != other:
                raise trace_error(
                    f"the loop body returns {value} as {path!r}, and {other} at its next call; a compiled step runs no Python and"
                    " would repeat the first: return tensors, or what is read of them, as loss.item()",
                    caller,
                )


def _expect_none(
    params: set[torch.Tensor], names: Mapping[torch.Tensor, str], caller: source.SourceLocation | None
) -> None:
    """Raise TraceError if the first call would find a gradient of a parameter for which later calls find none."""
    for param in params:
        if param.grad is not None:
            raise trace_error(
                f"{names[param]!r} has a gradient already, which the first call of the loop body would add to; call"
                " opt.zero_grad() before it is compiled",
                caller,
            )
