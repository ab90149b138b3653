"""The step as a graph of ATen ops: torch.export on `loss_fn(model, batch)`, functional, composites whole.

The public route only: `torch.export.export(…, strict=False).run_decompositions({})`. Nothing runs on the device, and the
model is left as it was, attributes that its `forward` sets included.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, OutputSpec
from torch.fx import Node

from aicf_mlir.errors import AicfError
from aicf_mlir.frontend import source
from aicf_mlir.frontend.example import Batch, LossFunction, TensorSpec, zeros
from aicf_mlir.frontend.recorder import Recorder, value_read
from aicf_mlir.frontend.source import SourceLocation, is_users_file, trace_error

_CHATTY_LOGGERS = ("torch._subclasses.fake_tensor", "torch.export._trace")
"""They report the very errors that `export` raises."""

_TORCH_NN = Path(torch.nn.__file__).parent


class StepModule(torch.nn.Module):
    """`loss_fn(model, batch)` as a module of the batch's tensors, in the order of `names`."""

    def __init__(
        self, model: torch.nn.Module, function: Callable[..., Any], names: Sequence[str], recorder: Recorder
    ):
        super().__init__()
        self.model = model
        self.function = function
        self.names = names
        self.recorder = recorder

    def forward(self, *tensors: torch.Tensor) -> Any:
        """The result of the function, refused if it is not a tensor or hides gradients from the graph."""
        with self.recorder:
            result = self.function(self.model, Batch(zip(self.names, tensors, strict=True)))
        if not isinstance(result, torch.Tensor):
            raise trace_error(
                f"expected one tensor as the result, got {type(result).__name__}",
                function_location(self.function),
            )
        refuse_custom_backward(result)
        return result


@dataclass(frozen=True)
class ExportedStep:
    """The graph and what its placeholders stand for."""

    program: ExportedProgram
    step: StepModule
    fallback: SourceLocation | None
    """The line that asked for the trace: where an op has no line of its own."""

    def decomposed(self, target: Any, decomposition: Any) -> ExportedStep:
        """The same step with every call of `target` replaced by what `decomposition` makes of it."""
        with _quiet():
            return replace(self, program=self.program.run_decompositions({target: decomposition}))

    @property
    def result(self) -> Node:
        """The node whose value the step returns; refuses a step that changes anything in place."""
        outputs = self.program.graph.output_node().args[0]
        for output, spec in zip(outputs, self.program.graph_signature.output_specs, strict=True):  # pyright: ignore
            if spec.kind is not OutputKind.USER_OUTPUT:
                raise self._mutation(spec, output)
            result = output
        return result

    def _mutation(self, spec: OutputSpec, node: Node) -> Exception:
        what = {
            OutputKind.BUFFER_MUTATION: "updates the buffer",
            OutputKind.PARAMETER_MUTATION: "changes the parameter",
            OutputKind.USER_INPUT_MUTATION: "changes the batch entry",
        }.get(spec.kind, f"has an output of kind {spec.kind.name}:")
        name = str(spec.target).removeprefix("model.")
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            name = self.inputs[str(spec.target)]
        return trace_error(
            f"the step {what} {name!r} in place, which is not supported"
            + ("; for batch norm call model.eval()" if "running_" in name or "num_batches" in name else ""),
            self.location(node),
        )

    @property
    def inputs(self) -> dict[str, str]:
        """The batch's name of each placeholder that stands for an input."""
        return dict(zip(self.program.graph_signature.user_inputs, self.step.names, strict=True))  # pyright: ignore

    def tensors(self) -> dict[str, tuple[InputKind, str, torch.Tensor]]:
        """For every other placeholder: its kind, its path in the step module, and the user's own tensor."""
        found: dict[str, tuple[InputKind, str, torch.Tensor]] = {}
        for spec in self.program.graph_signature.input_specs:
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
                found[spec.arg.name] = (spec.kind, str(spec.target), attrgetter(str(spec.target))(self.step))
            elif spec.kind is InputKind.CONSTANT_TENSOR:
                found[spec.arg.name] = (spec.kind, str(spec.target), self.program.constants[str(spec.target)])
        return found

    def location(self, node: Node) -> SourceLocation | None:
        """The user's line of `node`."""
        return source.of_stack_trace(node.meta.get("stack_trace")) or self.fallback


def export(
    model: torch.nn.Module,
    function: LossFunction,
    specs: Mapping[str, TensorSpec],
    fallback: SourceLocation | None,
) -> ExportedStep:
    """The step `function(model, batch)` for batches of `specs`.

    Raises TraceError, with the user's file and line, for whatever the model, the loss or torch.export objects to.
    """
    recorder = Recorder()
    step = StepModule(model, function, list(specs), recorder)
    try:
        with _quiet(), _attributes_restored(step), torch.enable_grad():
            program = torch.export.export(step, tuple(zeros(specs).values()), strict=False)
            return ExportedStep(program.run_decompositions({}), step, fallback)
    except AicfError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises becomes one error with its line
        location = source.of_traceback(error.__traceback__) or fallback
        if "DataDependent" in type(error).__name__:
            raise value_read("depends on the value of a tensor", location) from error
        text = str(error).strip().split("\n\n")[0]
        raise trace_error(f"{type(error).__name__}: {text}", location) from error


def function_location(function: Callable[..., Any]) -> SourceLocation | None:
    """Where a function of the user begins."""
    code = getattr(function, "__code__", None)
    return (
        SourceLocation(code.co_filename, code.co_firstlineno)
        if code and is_users_file(code.co_filename)
        else None
    )


def refuse_custom_backward(result: torch.Tensor) -> None:
    """Raise TraceError if a user-defined autograd.Function leads to `result`: tracing sees its forward only."""
    pending, seen = [result.grad_fn], set[object]()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, BackwardCFunction):
            function: type[torch.autograd.Function] = node._forward_cls  # pyright: ignore
            raise trace_error(
                f"the autograd function {function.__name__!r} has a backward of its own, which is not supported",
                function_location(function.forward),
            )
        pending += [before for before, _ in node.next_functions]


@contextmanager
def _attributes_restored(step: torch.nn.Module) -> Iterator[None]:
    """Undo what `forward` assigns to modules: the values would be those of the tracer."""
    saved = [(module, dict(vars(module))) for module in step.modules()]
    try:
        yield
    finally:
        for module, attributes in saved:
            vars(module).clear()
            vars(module).update(attributes)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch.export's own warnings and logs from the user, but not warnings about the user's code."""
    loggers = [logging.getLogger(name) for name in _CHATTY_LOGGERS]
    disabled = [logger.disabled for logger in loggers]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for logger in loggers:
                logger.disabled = True
            yield
        finally:
            for logger, before in zip(loggers, disabled, strict=True):
                logger.disabled = before
    for warning in caught:
        if is_users_file(warning.filename) or Path(warning.filename).is_relative_to(_TORCH_NN):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
