"""The step as a graph of ATen ops: torch.export on `loss_fn(model, batch)`, functional, composites whole.

The public route only: `torch.export.export(…, strict=False).run_decompositions({})`. Nothing runs on the
device, and the model is left as it was, attributes that its `forward` sets included.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.function import BackwardCFunction
from torch.export import ExportedProgram

from aicf_mlir.errors import AicfError
from aicf_mlir.frontend import drawn, source
from aicf_mlir.frontend.buffers import Buffers
from aicf_mlir.frontend.composites import seen_by_autocast, typed_by_autocast
from aicf_mlir.frontend.counted import Counters, differing
from aicf_mlir.frontend.example import LossFunction, TensorSpec, zeros
from aicf_mlir.frontend.exported_step import ExportedStep
from aicf_mlir.frontend.mask_hints import without_mask_hints
from aicf_mlir.frontend.outcome import outcome
from aicf_mlir.frontend.precision import Precision
from aicf_mlir.frontend.quiet import quiet
from aicf_mlir.frontend.reads import ModuleReads
from aicf_mlir.frontend.recorder import Recorder, value_read
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.structure import Structure
from aicf_mlir.frontend.torch_errors import explained
from aicf_mlir.ir.locations import SourceLocation

PYTHON = ("_operator", "math", "torch")
"""Where functions of numbers come from; of tuples `getitem`."""


@runtime_checkable
class Repeatable(Protocol):
    """A function of (model, batch) that serves one trace, and the recorder that it works with."""

    recorder: Recorder

    def anew(self) -> Repeatable:
        """The same for another trace."""
        ...

    def __call__(self, model: torch.nn.Module, batch: Any) -> Any:
        """What a step returns."""
        ...


FURTHER = (1, 1_000_000_000)
"""What is added to the numbers that a step counts, to see whether they matter."""


class StepModule(torch.nn.Module):
    """`function(model, batch)` as a module of the batch's tensors, in the order of `names`."""

    def __init__(
        self,
        model: torch.nn.Module,
        function: Callable[..., Any],
        names: Sequence[str],
        structure: Structure | None = None,
        recorder: Recorder | None = None,
        *,
        updates_parameters: bool = False,
        precision: Precision | None = None,
    ):
        super().__init__()
        self.model = model
        self.function = function
        self.names = names
        self.structure = structure or Structure.plain(names)
        self.recorder = recorder or Recorder()
        self.reads = ModuleReads()
        self.precision = precision or Precision()
        self.updates_parameters = updates_parameters
        self.held = Buffers(self, with_parameters=updates_parameters)
        self.counters: Counters | None = None
        self.moved = set[Hashable]()
        """Where Python numbers are that the function has changed."""
        self.outputs: list[str] = []
        """The names of what the function returned beside the loss."""

    def anew(self) -> StepModule:
        """The same step for another trace."""
        function = self.function
        recorder = None
        if isinstance(function, Repeatable):
            function = function.anew()
            recorder = function.recorder
        return StepModule(
            self.model,
            function,
            self.names,
            self.structure,
            recorder,
            updates_parameters=self.updates_parameters,
            precision=self.precision,
        )

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The loss and the outputs; refused if they are no tensors, or if the gradient of the loss would be lost."""
        function, model, names, reads = self.function, self.model, self.names, self.reads
        structure, precision = self.structure, self.precision  # what is read while reads are recorded is kept
        counters, moved = self.counters, self.moved
        forward = source.of_function(type(model).forward)
        with (
            self.held.traced(reads, forward),
            self.recorder,
            reads.recording(),
            precision.autocast(),
            drawn.refused(source.of_function(function) or forward),
        ):
            result = function(model, structure.rebuilt(dict(zip(names, tensors, strict=True))))
        if counters is not None:  # here, since torch.export puts attributes of modules back
            moved.update(counters.moved())
        loss, outputs = outcome(result, source.of_function(function))
        refuse_custom_backward(loss)
        self.outputs[:] = outputs
        return loss, *outputs.values()


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
    counters = step.counters = Counters(model, function)
    program = _program(step, specs, fallback)
    if step.moved and (moving := step.moved & _moving(step.anew(), specs, counters)):
        counters.put_back()
        for number in (
            FURTHER
        ):  # where a number makes no difference, it does not matter that a compiled step does not count
            with counters.at(moving, number):
                try:
                    same = _same(program, _program(step.anew(), specs, fallback))
                except AicfError:  # as an index of a list that is too large
                    same = False
                if not same:
                    counters.refuse(moving)
    tensors = {
        path: tensor
        for named in (step.named_parameters, step.named_buffers)
        for path, tensor in named(remove_duplicate=False)
    }
    return ExportedStep(
        program, tuple(specs), tuple(step.outputs), tensors, step.recorder, step.reads, fallback
    )


def _program(
    step: StepModule, specs: Mapping[str, TensorSpec], fallback: SourceLocation | None
) -> ExportedProgram:
    """The graph of a step by torch.export."""
    try:
        with (
            quiet(),
            without_mask_hints(),
            typed_by_autocast(),
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


def _same(one: ExportedProgram, other: ExportedProgram) -> bool:
    """Whether two programs compute the same."""
    texts = [program.graph_module.code for program in (one, other)]
    constants: list[Mapping[str, Any]] = [program.constants for program in (one, other)]
    return texts[0] == texts[1] and all(
        value is constants[1].get(name) or torch.equal(value, constants[1][name])
        for name, value in constants[0].items()
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
    try:
        with _without_graph(step, specs) as call:
            return call()[0]
    except Exception:  # noqa: BLE001 - whatever it is, torch.export meets it too
        return export(model, function, specs, fallback).result.meta["val"]


def _moving(step: StepModule, specs: Mapping[str, TensorSpec], counters: Counters) -> set[Hashable]:
    """
    The places of numbers that a call changes where one was before it: a cache that the first call fills is none.

    All that have moved, where the step does not run by fake tensors.
    """
    try:
        with _without_graph(step, specs) as call:
            call()
            before = counters.now()
            call()
            return differing(before, counters.now())
    except Exception:  # noqa: BLE001 - the export went through, so it is no fault of the step
        return counters.moved() | step.moved


@contextmanager
def _without_graph(
    step: StepModule, specs: Mapping[str, TensorSpec]
) -> Generator[Callable[[], tuple[torch.Tensor, ...]]]:
    """A call of `step` for batches of `specs` by fake tensors."""
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with (
        quiet(),
        without_mask_hints(),
        _attributes_restored(step),
        step.held.once(),
        torch.enable_grad(),
        fake,
    ):
        held = [*step.named_parameters(), *step.named_buffers()]
        tensors: dict[str, torch.Tensor] = {path: fake.from_tensor(tensor) for path, tensor in held}
        yield lambda: torch.func.functional_call(step, tensors, tuple(zeros(specs).values()))


def is_functional(program: ExportedProgram) -> bool:
    """Whether the graph of `program` has plain ops only: none that writes to a tensor, none with a graph inside."""
    targets: list[Any] = [node.target for node in program.graph.nodes if node.op == "call_function"]
    ops = [target for target in targets if target.__module__ not in PYTHON]
    return all(isinstance(op, OpOverload) and not schema_of(op).is_mutable for op in ops)


def schema_of(op: Any) -> Any:
    """The schema of an op: its arguments, and whether it writes to any; torch has no public name for it."""
    return op._schema


def decompose(program: ExportedProgram, decompositions: dict[Any, Any]) -> ExportedProgram:
    """`program` without mutation, and with the given ops replaced by their decompositions."""
    try:
        with quiet(), seen_by_autocast(program):
            return program.run_decompositions(decompositions)  # pyright: ignore[reportUnknownMemberType]
    except Exception as error:
        raise explained(error, source.here()) from error


def refuse_custom_backward(result: torch.Tensor) -> None:
    """Raise TraceError if an autograd.Function leads to `result`: the graph has its forward only."""
    pending, seen = [result.grad_fn], set[object]()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, BackwardCFunction):
            function: Any = vars(type(node))["_forward_cls"]
            raise trace_error(
                f"the autograd function {function.__name__!r} has its own backward, which is not supported",
                source.of_function(function.forward),
            )
        pending += [before for before, _ in node.next_functions]


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
