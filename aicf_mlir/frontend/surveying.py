"""`survey`: everything in a step that cannot be compiled, at once. A trace stops at the first error.

The JSON is one object, stable from version to version; keys are added, never changed while `version` stays:

    {"version": 1, "supported": true, "complete": true, "findings": [FINDING, …]}
    complete    true if the whole step was examined; false if an error ended the trace, after which there may be more
    FINDING     what            "aten.conv2d.default", or the part of the step: "optimizer", "code", "loss", "hooks", …
                count           the number of times there
                operands        their dtypes and shapes, "float32[2, 3, 8, 8], float32[4, 3, 3, 3]"; empty for no op
                file, line      the place; null if no line is known
                layer           "features.0: Conv2d", empty outside of the model
                reason          the reason
                instead         a replacement; empty if none is known
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import LossFunction, source
from aicf_mlir.frontend.bindings import bind
from aicf_mlir.frontend.example import batch_specs, loss_function
from aicf_mlir.frontend.export import export
from aicf_mlir.frontend.exported_step import ExportedStep
from aicf_mlir.frontend.lenient import LenientImporter, LenientRecorder, unsupported_ops
from aicf_mlir.frontend.metrics import Metrics
from aicf_mlir.frontend.model import device_of, dtype_of, modules_of, refuse_hooks, tensor_names, unwrapped
from aicf_mlir.frontend.one_at_a_time import one_at_a_time
from aicf_mlir.frontend.optimizer import describe, rule_of, trained_parameters
from aicf_mlir.frontend.random_state import RandomState
from aicf_mlir.frontend.structure import Structure
from aicf_mlir.frontend.traced_optimizer import trace_optimizer
from aicf_mlir.frontend.tracing import check_loss, refuse_surroundings, specs_of_sizes, trace
from aicf_mlir.frontend.unsupported import NO_FORM, op_name
from aicf_mlir.host.garbage import cycles_collected
from aicf_mlir.ir.locations import SourceLocation

VERSION = 1
"""The version of the JSON format."""


@dataclass(frozen=True)
class Finding:
    """An op, or another part of the step, that cannot be compiled."""

    what: str
    reason: str
    location: SourceLocation | None = None
    operands: str = ""
    instead: str = ""

    @property
    def place(self) -> str:
        """The place as `model.py:12`."""
        return "" if self.location is None else self.location.file_and_line

    @property
    def layer(self) -> str:
        """The layer as `features.0: Conv2d`."""
        return "" if self.location is None else self.location.layer


@dataclass(frozen=True)
class Survey:
    """The parts of a step that cannot be compiled."""

    findings: Counter[Finding]
    """The number of times each finding occurs, in the order of the step."""
    complete: bool = True
    """True if the whole step was examined."""

    @property
    def supported(self) -> bool:
        """True if there are no findings."""
        return not self.findings

    def __str__(self) -> str:
        """Return a table of places, then the advice for each op."""
        if self.supported:
            return "everything in this step is supported"
        rows = [("count", "what", "layer", "line")]
        rows += [
            (str(count), finding.what, finding.layer, finding.place)
            for finding, count in self.findings.items()
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            f"{count:>{widths[0]}}  {what:{widths[1]}}  {layer:{widths[2]}}  {line}".rstrip()
            for count, what, layer, line in rows
        ]
        said = dict.fromkeys((f.what, f.reason, f.instead) for f in self.findings)
        lines += ["", *(line for what, reason, instead in said for line in remarks(what, reason, instead))]
        return "\n".join(lines if self.complete else [*lines, "", INCOMPLETE])

    def to_json(self) -> str:
        """Return the same for programs."""
        findings = [
            {
                "what": finding.what,
                "count": count,
                "operands": finding.operands,
                "file": None if finding.location is None else finding.location.file,
                "line": None if finding.location is None else finding.location.line,
                "layer": finding.layer,
                "reason": finding.reason,
                "instead": finding.instead,
            }
            for finding, count in self.findings.items()
        ]
        report = {"supported": self.supported, "complete": self.complete, "findings": findings}
        return json.dumps({"version": VERSION, **report}, indent=2, ensure_ascii=False)


INCOMPLETE = "the trace ended before the end of the step: behind that there may be more"


def remarks(what: str, reason: str, instead: str) -> list[str]:
    """Return the lines about one op below the table."""
    return [f"{what}: {reason}", *([f"  write instead: {instead}"] if instead else [])]


@one_at_a_time
@cycles_collected()
def survey(
    model: torch.nn.Module,
    loss_fn: LossFunction | torch.nn.Module | None = None,
    example: Mapping[str, torch.Tensor] | None = None,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    B: int | None = None,
    D: int | None = None,
    dtype: torch.dtype | None = None,
) -> Survey:
    """Return everything in the step of `model` that cannot be compiled, with its place, its reason and a replacement.

    The arguments are those of `trace`. Nothing is compiled, and nothing of the model or the optimizer changes. If
    the user's code reads the value of a tensor, the survey continues with an invented one: a condition is true, a
    number is 1. There is no finding exactly where `trace` raises no error.
    """
    try:
        trace(model, loss_fn, example, optimizer=optimizer, B=B, D=D, dtype=dtype, random=RandomState(0))
    except TraceError as error:
        stopped = error
    else:
        return Survey(Counter())
    surveyor = _Surveyor()
    with surveyor.noted("step"):
        surveyor.look(unwrapped(model), loss_fn, example, optimizer, B, D, dtype)
    if not surveyor.findings:
        surveyor.add("step", stopped)
    return Survey(surveyor.findings, surveyor.complete)


@dataclass
class _Surveyor:
    """Goes through a step as `trace` does, and notes the errors that it would raise."""

    findings: Counter[Finding] = field(default_factory=Counter[Finding])
    complete: bool = True

    def add(self, what: str, error: TraceError) -> None:
        """Add an error once, even if it is met several times."""
        self.findings[Finding(what, error.reason, error.location)] = 1

    @contextmanager
    def noted(self, what: str, *, ends: bool = True) -> Generator[None]:
        """Note the error that ends the block; `ends` means that it hides later findings."""
        try:
            yield
        except TraceError as error:
            self.add(what, error)
            self.complete &= not ends

    def look(
        self,
        model: torch.nn.Module,
        loss_fn: LossFunction | torch.nn.Module | None,
        example: Mapping[str, torch.Tensor] | None,
        optimizer: torch.optim.Optimizer | None,
        B: int | None,
        D: int | None,
        dtype: torch.dtype | None,
    ) -> None:
        """Examine the parts of the step. Raises TraceError for a model or a batch that reveals nothing about it."""
        caller = source.here()
        function = loss_function(loss_fn)
        modules = modules_of(model, function)
        names = tensor_names(modules)
        with self.noted("autocast", ends=False):
            refuse_surroundings(caller)
        with self.noted("hooks", ends=False):
            refuse_hooks(modules, names, called_of=(model, function))
        trained = trained_parameters(None, names)
        if optimizer is not None:
            with self.noted("optimizer", ends=False):
                trained = trained_parameters(optimizer, names)
            with self.noted("optimizer", ends=False):
                read = {tensor: name for tensor, name in names.items() if tensor in trained}
                if rule_of(optimizer) is not None:
                    describe(optimizer, read)
                else:
                    trace_optimizer(optimizer, read, "survey_update", device_of(names, None))
        where = device_of(names, None)
        if example is None:
            specs = specs_of_sizes(model, loss_fn, B, D, dtype or dtype_of(names), where, caller)
            structure = Structure.plain(specs)
        else:
            specs, structure = batch_specs(example, where)
        recorder = LenientRecorder()
        with self.noted("code"):
            try:
                exported = export(model, function, specs, caller, structure, recorder)
            except TraceError as error:
                self.complete = False
                if recorder.errors and error.__cause__ is not None:
                    return  # it may come from an invented value
                raise
            finally:
                for error in recorder.errors:
                    self.add("code", error)
            with self.noted("loss", ends=False):
                check_loss(exported, function)

            def importer_of(step: ExportedStep) -> LenientImporter:
                return LenientImporter(
                    step, bind(step, names, trained), specs, "survey", RandomState(0), Metrics()
                )

            self.ops(exported, importer_of)

    def ops(self, exported: ExportedStep, importer_of: Callable[[ExportedStep], LenientImporter]) -> None:
        """Note the ops of the step that are not supported, and other obstacles in its graph."""
        unsupported, errors = unsupported_ops(exported, importer_of)
        for op, reason in unsupported:
            why = reason or NO_FORM
            self.findings[Finding(op_name(op.node), why, op.location, op.operands, op.advice)] += 1
        for error in errors:
            self.add("code", error)
