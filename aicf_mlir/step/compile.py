"""From a PyTorch model, loss and optimizer to a `CompiledTrainStep`: trace, lower, plan, bind."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir import _C
from aicf_mlir.dialects.optimizer_groups import OPTIMIZER, Group, parse_groups
from aicf_mlir.errors import BindError
from aicf_mlir.frontend import LossFunction, Traced, source, trace
from aicf_mlir.frontend.metrics import Metrics
from aicf_mlir.frontend.model import check_dtype, unwrapped
from aicf_mlir.frontend.one_at_a_time import one_at_a_time
from aicf_mlir.frontend.precision import Precision, PrecisionName
from aicf_mlir.frontend.random_state import RandomState
from aicf_mlir.frontend.structure import Batch, expect_one, several, shapes_of
from aicf_mlir.frontend.tracing import refuse_surroundings
from aicf_mlir.host.garbage import cycles_collected
from aicf_mlir.ir.signature import result_labels, steps
from aicf_mlir.passes.pipeline import available_passes
from aicf_mlir.runtime.binding import Built, bind_step
from aicf_mlir.runtime.devices import usable_device
from aicf_mlir.runtime.eager_steps import belongs_to
from aicf_mlir.runtime.further_sizes import expect_further_sizes
from aicf_mlir.runtime.host_values import HostValue, find_host_values, in_place_of_numbers
from aicf_mlir.runtime.micro_batches import StepBatch, checked_count, each_step, shapes_of_parts
from aicf_mlir.runtime.plan_file import PlanFile
from aicf_mlir.runtime.program import load_program
from aicf_mlir.stages import STAGE_NAMES, Snapshots, make_context, run_stages
from aicf_mlir.step.compiled_step import CompiledTrainStep
from aicf_mlir.step.eval_step import CompiledEvalStep
from aicf_mlir.step.options.averaging import WeightAverage
from aicf_mlir.step.options.branching import Branching
from aicf_mlir.step.options.clipping import ClipGradNorm, Clipping
from aicf_mlir.step.options.loss_scaling import LossScale, LossScaling
from aicf_mlir.tuning.locked import Locked

log = logging.getLogger("aicf")

for _load in available_passes().values():
    _load()  # a compilation needs nearly all of them: they come with the compiler, and not with the first step


def compile_train_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    loss_fn: LossFunction | None = None,
    example: Batch | Sequence[Batch] | None = None,
    B: int | Sequence[int] | None = None,
    D: int | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    warmup_inputs: StepBatch | Sequence[StepBatch] | None = None,
    warmup_runs: int = 1,
    warmup_required: bool = True,
    name: str = "step",
    keep_gradients: bool = False,
    meta: Sequence[str] = (),
    check_finite: bool = False,
    seed: int | None = None,
    further_sizes: int = 0,
    clip_grad_norm: float | Sequence[float] | ClipGradNorm | None = None,
    clip_grad_value: float | None = None,
    accumulate: int | None = None,
    metrics: Mapping[str, str] | None = None,
    precision: PrecisionName | None = None,
    loss_scale: Literal["auto", "dynamic"] | float | LossScale | None = "auto",
    ema: float | None = None,
    plan: str | os.PathLike[str] | None = None,
    lock: str | os.PathLike[str] | None = None,
) -> CompiledTrainStep:
    """Compile the whole train step of `model` under `optimizer`.

    `loss_fn(model, batch)` returns a 0-d loss; the default is the mean squared error of `model(batch["x"])` against `batch["t"]`.
    It may return `(loss, {name: tensor})`: those are then `step.outputs` after each step; only the loss is differentiated.
    A batch is a dictionary, tuple or list of tensors, nested as one likes, and `loss_fn` gets it as the step does. Its tensors
    have names: the keys, or the numbers of the places, with dots between the levels ("x", "0", "inputs.ids"). They are on the
    device of the step or on the host, from where they travel to a GPU while the step before runs; see `docs/design/runtime.md`.
    The shapes come from `example` (a batch, or several, one per shape group, in a list without a tensor at its top), or from `B`
    (one batch size or several) and `D` (features of "x"; "t" has the shape of the model's output). Parameters become views into
    memory of their own on `device` (default: CUDA where usable, else the CPU) and keep their values; the model and the optimizer
    stay ordinary torch objects.
    `warmup_inputs` warms up at once, `warmup_runs` times each. `keep_gradients` keeps every gradient readable after a step:
    as `step.gradients`, and as `p.grad`, a copy, which an optimizer or `clip_grad_norm_` called by hand then finds.
    A class index out of range skips the whole step and raises `OutOfRangeError`; with `check_finite` so does a loss or a gradient
    that is NaN or infinite, with `NonFiniteError`. On CUDA the error comes with the next call that sees it, and nothing trains
    in between.
    `meta` names Python numbers that the step reads (`"model.alpha"`, as `guards()` lists them) and that may change between steps.
    Random numbers, as of dropout, follow from `seed`, the step and the place in the model; as they are drawn they have the same
    bits on both devices, normal and exponential ones of f64 apart. Without a `seed` one is drawn from torch's generator.
    `step.seed(n)` begins anew.
    `clip_grad_value` brings each element of the gradients between its negative and itself, then `clip_grad_norm` limits their
    norm, as the functions of torch.nn.utils do: of all gradients together, or with a sequence that of each param group;
    `ClipGradNorm(1.0, math.inf)` another norm than 2. The limits are meta slots, `step.meta["clip_grad_norm"] = 0.5`, and
    `step.grad_norm` is the norm that there was. `check_finite` looks at gradients before, `keep_gradients` keeps limited ones.
    `accumulate=k` makes one update of k micro-batches: a step then takes a list of k batches of the shapes of `example` (or of
    `B`), and `replay(n)` is n updates. Loss and gradients are the means over the k, as where each loss is divided by k before
    `backward()`; running statistics and random numbers go on from one to the next, and a check that fails skips all of them.
    `precision="bf16"` or `"f16"` runs model and loss under torch.autocast of the device, as one does in a loop of torch, with
    `backward()` outside of it: parameters, optimizer state and updates are f32, and products compute in `precision`, each op in
    what torch lists it for. An autocast in the loss function goes before. `"f32"` computes as the model is written, and expects
    parameters of f32 too; with `"tf32"` products of model and loss, and of their gradients, may round operands of f32 to TF32 on
    a GPU. torch's own switches for that are not followed. With "f16" the loss is scaled dynamically where `loss_scale` is not
    given; `loss_scale=None` scales nothing.
    `loss_scale="dynamic"` multiplies the loss before it is differentiated and divides its gradients, by the rules of
    torch.amp.GradScaler (`LossScale` has its options); a number stays as it is. A step with an inf or NaN among its gradients
    changes no parameter and no optimizer state. `step.loss_scale` is the scale, `step.skipped` how many steps were skipped.
    `ema=0.999` keeps an exponential moving average of each parameter that the step trains, as torch.optim.swa_utils.AveragedModel
    with `get_ema_multi_avg_fn(0.999)` does behind each step: `step.ema` has copies of them by the names of the parameters.
    `recompile()` keeps those of parameters that are still trained and no others; that of a new one begins as it is then.

    With `further_sizes=N` a batch that differs in leading sizes alone, as the last of an epoch does, is compiled when it comes.
    Up to N are kept beside those named here; the least recently used makes room.

    `metrics` gathers outputs over steps, {"accuracy": "mean"}, by "mean", "sum", "max" or "min"; `step.metrics()` reads them.

    `plan` is the path of a plan that somebody has edited: what `step.ir("plan")` of this model, options and shapes has written.
    The step runs that plan, with whatever it says otherwise; it must bind, update and check what the step's own does. A kernel id
    of "" is filled in, and so are all addresses in an edited `step.ir("buffers")`. See `docs/guide/read_a_plan.md`.

    `lock` is the path of what `aicf-tune` has measured of this step on this machine; the step takes its kernels. LockError where
    it is of another machine, or has no kernel for an op of the step.

    Steps over the same model or optimizer share parameters and state: each sees the others' updates, and they run one at a time.

    Raises TraceError for what cannot be expressed, SelectionError when a kernel is missing for the device, BindError for tensors
    that do not fit, VerifyError with file, line and column for a plan that breaks a rule.
    """
    refuse_surroundings(source.here())
    count = checked_count(accumulate, further_sizes)
    request = Request(
        model,
        (optimizer,),
        loss_fn,
        shapes_of(example if count is None else shapes_of_parts(example)),
        B,
        D,
        device,
        dtype,
        name,
        keep_gradients,
        tuple(meta),
        check_finite,
        RandomState(seed),
        further_sizes=expect_further_sizes(further_sizes),
        clipping=Clipping.of(clip_grad_norm, clip_grad_value),
        accumulate=count,
        metrics=Metrics(metrics),
        scaling=LossScaling.of(loss_scale, check_finite, Precision.of(precision)),
        average=WeightAverage(ema),
        precision=Precision.of(precision),
        plan=PlanFile.read(plan),
        locked=Locked.of(lock, plan),
    )
    with cycles_collected():
        step = CompiledTrainStep(request, request.build(), warmup_required)
    belongs_to(optimizer, step)
    for batch in each_step(warmup_inputs, count):
        step.warmup(batch, warmup_runs)
    return step


def compile_eval_step(
    model: torch.nn.Module,
    *,
    loss_fn: LossFunction | None = None,
    example: Batch | Sequence[Batch] | None = None,
    B: int | Sequence[int] | None = None,
    D: int | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    name: str = "eval",
    meta: Sequence[str] = (),
    seed: int | None = None,
    further_sizes: int = 0,
    metrics: Mapping[str, str] | None = None,
    precision: PrecisionName | None = None,
    plan: str | os.PathLike[str] | None = None,
    lock: str | os.PathLike[str] | None = None,
) -> CompiledEvalStep:
    """Compile the loss of `model` alone: the step computes it and trains nothing.

    The arguments are those of `compile_train_step`. The model's mode counts: call `model.eval()` first, and before each call.
    """
    refuse_surroundings(source.here())
    request = Request(
        model,
        (),
        loss_fn,
        shapes_of(example),
        B,
        D,
        device,
        dtype,
        name,
        False,
        tuple(meta),
        random=RandomState(seed),
        further_sizes=expect_further_sizes(further_sizes),
        metrics=Metrics(metrics),
        precision=Precision.of(precision),
        plan=PlanFile.read(plan),
        locked=Locked.of(lock, plan),
    )
    with cycles_collected():
        return CompiledEvalStep(request, request.build(), warmup_required=False)


ShapeGroup = tuple[Batch | None, int | None]
"""What a plan is compiled for: a batch, or a size of "x" and "t"."""


@dataclass(frozen=True, eq=False)
class Request:
    """What was asked to be compiled; it can be traced and built again."""

    model: torch.nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    """One, or those of a loop body; none for an evaluation step."""
    loss_fn: LossFunction | None
    example: Batch | Sequence[Batch] | None
    B: int | Sequence[int] | None
    D: int | None
    device: str | torch.device | None
    dtype: torch.dtype | None
    name: str
    keep_gradients: bool
    meta: tuple[str, ...]
    check_finite: bool = False
    random: RandomState = field(default_factory=RandomState)
    clipping: Clipping = field(default_factory=Clipping)
    accumulate: int | None = None
    """Of how many micro-batches a step is; None for one of one batch."""
    further_sizes: int = 0
    metrics: Metrics = field(default_factory=Metrics)
    scaling: LossScaling = field(default_factory=LossScaling)
    average: WeightAverage = field(default_factory=WeightAverage)
    precision: Precision = field(default_factory=Precision)
    plan: PlanFile | None = None
    """A plan that takes the place of the step's own."""
    locked: Locked = field(default_factory=Locked)
    branching: Branching = field(default_factory=Branching.of_environment)
    groups: tuple[ShapeGroup, ...] | None = None
    """The shape groups, once they are no more those that were asked for at first."""

    @property
    def shape_groups(self) -> Sequence[ShapeGroup]:
        """What is compiled for."""
        return _shape_groups(self.example, self.B) if self.groups is None else self.groups

    def anew(self) -> Request:
        """The same for the shape groups that were asked for at first."""
        return replace(self, groups=None)

    @one_at_a_time
    def trace(
        self, host_values: Mapping[str, HostValue], groups: Sequence[ShapeGroup] | None = None
    ) -> list[Traced]:
        """One trace per shape group, all or the given ones, with tensors in place of the numbers among `host_values`."""
        names = {value.tensor: name for name, value in host_values.items()}
        with cycles_collected(), in_place_of_numbers(list(host_values.values())):
            wanted = self.shape_groups if groups is None else groups
            traces = [self.trace_group(batch, size, names) for batch, size in wanted]
        where = usable_device(self.device)
        return self.average.beside([self.scaling.beside(traced, where) for traced in traces], where)

    def trace_group(
        self, batch: Batch | None, size: int | None, host_values: Mapping[torch.Tensor, str]
    ) -> Traced:
        """The trace of one shape group."""
        return trace(
            self.model,
            self.loss_fn,
            batch,
            optimizer=next(iter(self.optimizers), None),
            name=self.name,
            B=size,
            D=self.D if batch is None else None,
            dtype=self.dtype or _dtype(self.model),
            host_values=host_values,
            random=self.random,
            metrics=self.metrics,
            device=self.precision_here.device,
            precision=self.precision_here,
        )

    @property
    def precision_here(self) -> Precision:
        """What is computed in, on the device of the step."""
        return self.precision.on(usable_device(self.device))

    def build(self) -> Built:
        """Trace, lower, plan and bind. Nothing is bound unless everything before has succeeded."""
        unwrapped(self.model)
        self.clipping.check(next(iter(self.optimizers), None))
        where = usable_device(self.device)
        check_dtype(self.model, self.dtype)
        if self.plan is not None:
            self.plan.expect_one_size(len(self.shape_groups), self.further_sizes)
        host_values: dict[str, HostValue] = {}
        traces = self.trace(host_values)
        if self.meta:
            reads = [read for traced in traces for read in traced.reads]
            dtype = torch.float64 if _dtype(self.model) is torch.float64 else torch.float32
            host_values = find_host_values(self.meta, reads, where, dtype)
            traces = self.trace(host_values)
        expect_one([traced.structure for traced in traces])
        for traced in traces:
            labels = [label for step in steps(traced.module) for label in result_labels(step)]
            outputs = [label.name for label in labels if label.role == "output"]
            self.clipping.check_outputs(outputs)
            self.scaling.check_outputs(outputs)
        modules = [traced.module.clone() for traced in traces]
        with self.locked.told():
            stages = [self.lower(traced, str(where)) for traced in traces]
            plan_file = None if self.plan is None else self.plan.bound_to(stages[0], where)
            programs = [load_program(snapshots["plan"]) for snapshots in stages]
            told = f" in {self.precision.name}" if self.precision.name else ""
            log.info("%s: compiled %d shape group(s) for %s%s", self.name, len(programs), where, told)
            if plan_file is not None:
                level = logging.WARNING if plan_file.changes_meaning else logging.INFO
                log.log(level, "%s: %s", self.name, plan_file.told)
            groups = _optimizer_groups(stages[0]["step"]) if self.optimizers else []
            return bind_step(
                traces,
                modules,
                stages,
                programs,
                self.optimizers,
                groups,
                where,
                host_values,
                self.clipping.numbers,
                plan_file,
                bool(self.locked.path),
            )

    @property
    def trains(self) -> bool:
        """Whether the step takes gradients and updates parameters."""
        return bool(self.optimizers)

    def lower(self, traced: Traced, device: str) -> Snapshots:
        """Every stage of one shape group."""
        where = torch.device(device)
        target = _C.target_of(str(where))
        kernels = {**self.locked.passes(str(where)), **self.branching.passes}
        stages, context = Snapshots(STAGE_NAMES[-1]), make_context()
        if not self.trains:  # lowered as it is: neither differentiated nor updated
            run_stages(traced.module, context, target=target, until="nn", after_each=stages)
            run_stages(
                traced.module, context, target=target, first="lowered", after_each=stages, options=kernels
            )
            return stages
        options = {
            **kernels,
            **({} if self.accumulate is None else {"accumulate": f"count={self.accumulate}"}),
            **({"check-finite": ""} if self.check_finite else {}),
            **self.clipping.passes,
            **self.scaling.passes,
            **self.average.passes,
            **({"apply-optimizer": "keep-grads"} if self.keep_gradients else {}),
        }
        run_stages(traced.module, context, target=target, after_each=stages, options=options)
        return stages


def _dtype(model: torch.nn.Module) -> torch.dtype:
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def _shape_groups(example: Batch | Sequence[Batch] | None, B: int | Sequence[int] | None) -> list[ShapeGroup]:
    if example is not None:
        if B is not None:
            raise BindError("give the shapes once: either example= or B= and D=")
        batches = several(example)
        if not batches:
            raise BindError("example= is an empty list; give at least one batch")
        return [(batch, None) for batch in batches]
    if isinstance(B, Sequence):
        if not B:
            raise BindError("B= is an empty list; give at least one batch size")
        return [(None, size) for size in B]
    return [(None, B)]


def _optimizer_groups(module: ModuleOp) -> list[Group]:
    """The param groups as the compiled step has them: only parameters that are trained."""
    function = next(op for op in module.ops if isinstance(op, func.FuncOp))
    return parse_groups(function.attributes[OPTIMIZER])
