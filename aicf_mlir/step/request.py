"""A request to compile: model, optimizers and the effects of options; it can be traced, lowered and bound."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar, cast

import torch
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException, VerifyException

from aicf_mlir import _C
from aicf_mlir.dialects.optimizer_groups import OPTIMIZER, ParamGroup, parse_groups
from aicf_mlir.dialects.train import GradientOp, InputOp
from aicf_mlir.errors import LoweringError, TraceError
from aicf_mlir.frontend import LossFunction, Traced, trace
from aicf_mlir.frontend.model import check_dtype, unwrapped
from aicf_mlir.frontend.one_at_a_time import one_at_a_time
from aicf_mlir.frontend.precision import Precision
from aicf_mlir.frontend.structure import Batch, expect_one
from aicf_mlir.host.garbage import cycles_collected
from aicf_mlir.ir.signature import result_labels, steps
from aicf_mlir.passes.pipeline import parse_passes, run_passes
from aicf_mlir.runtime.binding import Built, bind_step
from aicf_mlir.runtime.devices import usable_device
from aicf_mlir.runtime.host_values import HostValue, find_host_values, in_place_of_numbers
from aicf_mlir.runtime.program import Program, load_program
from aicf_mlir.stages import STAGE_NAMES, Snapshots, make_context, run_stages
from aicf_mlir.step.options.gradients import KeptGradients
from aicf_mlir.step.options.lock import Locked
from aicf_mlir.step.options.meta import HostNumbers
from aicf_mlir.step.options.metrics import GatheredMetrics
from aicf_mlir.step.options.option import Effect, Entry
from aicf_mlir.step.options.plan import EditedPlan
from aicf_mlir.step.options.precision import StepPrecision
from aicf_mlir.step.options.seed import Randomness
from aicf_mlir.step.options.shapes import ShapeGroup, Shapes
from aicf_mlir.step.options.table import effects_of, options_of

log = logging.getLogger("aicf")

E = TypeVar("E", bound=Effect)


@dataclass(frozen=True, eq=False)
class Request:
    """A model under its optimizers, with the options of one function."""

    model: torch.nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    """The optimizer, or the optimizers of a loop body; none for an evaluation step."""
    given: Mapping[str, Any]
    """The arguments of the options, by keyword."""
    effects: Mapping[type[Effect], Effect]
    groups: tuple[ShapeGroup, ...] | None = None
    """The shape groups, once they differ from the ones first requested."""

    @classmethod
    def of(
        cls,
        entry: Entry,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        arguments: Mapping[str, Any],
        **more: Any,
    ) -> Self:
        """Make a request from the arguments of the function `entry`, and further fields. Raises BindError for an
        invalid option value.
        """
        given = {option.keyword: arguments[option.keyword] for option in options_of(entry)}
        return cls(model, optimizers, given, effects_of(given), **more)

    def effect(self, kind: type[E]) -> E:
        """The effect of one kind."""
        return cast(E, self.effects[kind])

    def with_effect(self, effect: Effect) -> Self:
        """Return the same request with the effect of that kind replaced."""
        return replace(self, effects={**self.effects, type(effect): effect})

    @property
    def name(self) -> str:
        """The name of the step."""
        return self.given["name"]

    @property
    def loss_fn(self) -> LossFunction | None:
        """The loss function; None for the mean squared error, and for a loop body."""
        return self.given.get("loss_fn")

    @property
    def device(self) -> torch.device:
        """The device of the step. Raises BindError if it does not exist."""
        return usable_device(self.given["device"])

    @property
    def shape_groups(self) -> Sequence[ShapeGroup]:
        """The shape groups to compile for."""
        return self.effect(Shapes).groups() if self.groups is None else self.groups

    def anew(self) -> Request:
        """Return the same request for the shape groups that were first requested."""
        return replace(self, groups=None)

    @one_at_a_time
    def trace(
        self, host_values: Mapping[str, HostValue], groups: Sequence[ShapeGroup] | None = None
    ) -> list[Traced]:
        """Return one trace per shape group, all or the given ones, with tensors in place of the numbers among
        `host_values`.
        """
        names = {value.tensor: name for name, value in host_values.items()}
        with cycles_collected(), in_place_of_numbers(list(host_values.values())):
            wanted = self.shape_groups if groups is None else groups
            traces = [self.trace_group(batch, size, names) for batch, size in wanted]
        where = self.device
        for effect in self.effects.values():
            traces = effect.added(traces, where)
        return traces

    def trace_group(
        self, batch: Batch | None, size: int | None, host_values: Mapping[torch.Tensor, str]
    ) -> Traced:
        """Return the trace of one shape group."""
        return trace(
            self.model,
            self.loss_fn,
            batch,
            optimizer=next(iter(self.optimizers), None),
            name=self.name,
            B=size,
            D=self.given.get("D") if batch is None else None,
            dtype=self.given.get("dtype") or _dtype(self.model),
            host_values=host_values,
            random=self.effect(Randomness).state,
            metrics=self.effect(GatheredMetrics).metrics,
            device=self.precision_here.device,
            precision=self.precision_here,
        )

    @property
    def precision_here(self) -> Precision:
        """The precision of computation, on the device of the step."""
        return self.effect(StepPrecision).precision.on(self.device)

    def built(self) -> tuple[Request, Built]:
        """Return what `build` returns, and the request that it is for: this one, or one that has learned more."""
        return self, self.build()

    def build(self) -> Built:
        """Trace, lower, plan and bind. Nothing is bound unless everything before has succeeded."""
        unwrapped(self.model)
        where = self.device
        check_dtype(self.model, self.given.get("dtype"))
        for effect in self.effects.values():
            effect.check(self)
        host_values: dict[str, HostValue] = {}
        traces = self.trace(host_values)
        if places := self.effect(HostNumbers).places:
            reads = [read for traced in traces for read in traced.reads]
            dtype = torch.float64 if _dtype(self.model) is torch.float64 else torch.float32
            host_values = find_host_values(places, reads, where, dtype)
            traces = self.trace(host_values)
        expect_one([traced.structure for traced in traces])
        for traced in traces:
            labels = [label for step in steps(traced.module) for label in result_labels(step)]
            outputs = [label.name for label in labels if label.role == "output"]
            for effect in self.effects.values():
                effect.check_outputs(outputs)
        modules = [traced.module.clone() for traced in traces]
        with self.explained():
            stages = [self.lower(traced, str(where)) for traced in traces]
            plan = self.effect(EditedPlan).file
            plan_file = None if plan is None else plan.bound_to(stages[0], where)
            programs = [self.load(snapshots) for snapshots in stages]
            told = f" in {self.precision_here.name}" if self.precision_here.name else ""
            log.info("%s: compiled %d shape group(s) for %s%s", self.name, len(programs), where, told)
            if plan_file is not None:
                level = logging.WARNING if plan_file.changes_meaning else logging.INFO
                log.log(level, "%s: %s", self.name, plan_file.told)
            groups = _optimizer_groups(stages[0]["step"]) if self.optimizers else []
            numbers = {name: n for effect in self.effects.values() for name, n in effect.numbers.items()}
            return bind_step(
                traces,
                modules,
                stages,
                programs,
                self.optimizers,
                groups,
                where,
                host_values,
                numbers,
                plan_file,
                bool(self.effect(Locked).path),
            )

    @property
    def trains(self) -> bool:
        """True if the step takes gradients and updates parameters."""
        return bool(self.optimizers)

    @contextmanager
    def explained(self) -> Generator[None]:
        """Surround lowering and binding: errors that come from an option name it."""
        with ExitStack() as stack:
            for effect in self.effects.values():
                stack.enter_context(effect.explained())
            yield

    @property
    def described(self) -> Mapping[str, str | None]:
        """The lines of `step.describe()` about options, by key."""
        return {key: text for effect in self.effects.values() for key, text in effect.described.items()}

    def passes(self, device: str) -> Mapping[str, str]:
        """Return the passes that options request, with their options."""
        asked: dict[str, str] = {}
        for effect in self.effects.values():
            for name, options in effect.passes(device).items():
                asked[name] = f"{asked.get(name, '')} {options}".strip()
        return asked

    def lower(self, traced: Traced, device: str) -> Snapshots:
        """Return every stage of one shape group. Raises LoweringError if a pass of ours makes a step that breaks the rules."""
        try:
            return self._lowered(traced, device)
        except VerifyException as error:
            texts = [str(error).partition("\n")[0], *getattr(error, "__notes__", [])]
            said = ", ".join(text for text in texts if "\n" not in text)
            raise LoweringError(
                f"{self.name}: {said}: a fault of AICF; nothing was changed. Please report it with your model"
            ) from None  # the text and the notes of xDSL's error have all of the step

    def _lowered(self, traced: Traced, device: str) -> Snapshots:
        target, options = _C.target_of(device), self.passes(device)
        stages, context = Snapshots(STAGE_NAMES[-1]), make_context()
        first = "nn"
        if not self.trains:  # lowered without an update
            run_stages(traced.module, context, target=target, until="nn", after_each=stages)
            if self.effect(KeptGradients).are_kept:
                try:
                    run_passes(context, traced.module, parse_passes("autodiff"))
                except PassFailedException as error:
                    raise TraceError(f"{self.name}: keep_gradients: {error}") from error
            elif any(isinstance(op, GradientOp | InputOp) for op in traced.module.walk()):
                run_passes(context, traced.module, parse_passes("autodiff{inner}"))
            first = "lowered"
        run_stages(traced.module, context, target=target, first=first, after_each=stages, options=options)
        return stages

    def load(self, stages: Snapshots) -> Program:
        """Return the plan of one shape group, to be bound. Raises BindError if an option does not allow it."""
        program = load_program(stages["plan"])
        for effect in self.effects.values():
            effect.check_program(self.name, program)
        return program


def _dtype(model: torch.nn.Module) -> torch.dtype:
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def _optimizer_groups(module: ModuleOp) -> list[ParamGroup]:
    """Return the param groups of the compiled step: only parameters that are trained."""
    function = next(op for op in module.ops if isinstance(op, func.FuncOp))
    return parse_groups(function.attributes[OPTIMIZER])
