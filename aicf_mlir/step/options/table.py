"""THE table of options of the functions that compile a step, in the order of their signatures.

The functions, the documentation (`docs/option_table.md`, `help(compile_train_step)`) and the test of signatures follow its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import cleandoc
from textwrap import fill
from typing import Any, TypeVar

from aicf_mlir.step.options.accumulate import Accumulation
from aicf_mlir.step.options.averaging import WeightAverage
from aicf_mlir.step.options.branching import Branching
from aicf_mlir.step.options.clipping import Clipping
from aicf_mlir.step.options.finite import FiniteCheck
from aicf_mlir.step.options.further_sizes import FurtherSizes
from aicf_mlir.step.options.gradients import KeptGradients
from aicf_mlir.step.options.lock import Locked
from aicf_mlir.step.options.loss_scaling import LossScaling
from aicf_mlir.step.options.memory_limit import MemoryLimit
from aicf_mlir.step.options.mesh import DataParallel
from aicf_mlir.step.options.meta import HostNumbers
from aicf_mlir.step.options.metrics import GatheredMetrics
from aicf_mlir.step.options.option import NOT_IN_LOOPS, REQUIRED, TRAINING, Effect, Entry, Option
from aicf_mlir.step.options.plan import EditedPlan
from aicf_mlir.step.options.precision import StepPrecision
from aicf_mlir.step.options.seed import Randomness
from aicf_mlir.step.options.shapes import Shapes
from aicf_mlir.step.options.warmup import Warmup

BATCHES = "Batch | Sequence[Batch]"
PATH = "str | os.PathLike[str] | None"

OPTIONS: tuple[Option, ...] = (
    Option(
        "loss_fn",
        "LossFunction | None",
        None,
        """`loss_fn(model, batch)` returns a 0-d loss. Without it the loss is the mean squared error of `model(batch["x"])`
        against `batch["t"]`. It may return `(loss, {name: tensor})`: only the loss is differentiated, and
        `step.outputs` has the tensors after each step.""",
        taken_by=NOT_IN_LOOPS,
        reports=("loss", "outputs"),
    ),
    Option(
        "example",
        f"{BATCHES} | None",
        None,
        """A batch whose shapes the step is compiled for, or several, one for each batch size, in a list without a tensor
        at its top. A batch is a dictionary, dataclass, tuple or list of tensors, nested as you like, or one tensor. The model
        or the loss gets it in that form. Its tensors have names: the keys, or the numbers of the places, with dots between the
        levels ("x", "0", "inputs.ids"). They are on the device of the step, or on the host, from where they travel to a
        GPU while the step before runs.""",
        Shapes,
        reports=("inputs",),
        apart={"loop": (BATCHES, REQUIRED)},
    ),
    Option(
        "B",
        "int | Sequence[int] | None",
        None,
        """One batch size or several, in the place of `example`. A batch is then `{"x": x, "t": t}`, with `x` of shape [B,
        D] and `t` of the shape of the model's output.""",
        Shapes,
        NOT_IN_LOOPS,
    ),
    Option("D", "int | None", None, """The number of features of `x`, with `B`.""", taken_by=NOT_IN_LOOPS),
    Option(
        "device",
        "str | torch.device | None",
        None,
        """Where the step runs: by default on CUDA where it is usable, else on the CPU. Parameters become views into memory
        of their own there and keep their values. Model and optimizer stay ordinary torch objects.""",
        reports=("device",),
    ),
    Option(
        "dtype",
        "torch.dtype | None",
        None,
        """The type of the parameters, and of `x` with `B` and `D`. A parameter of another floating-point type is refused.""",
        taken_by=NOT_IN_LOOPS,
    ),
    Option(
        "warmup_inputs",
        "StepBatch | Sequence[StepBatch] | None",
        None,
        """Batches that warm the step up as soon as it is compiled. Parameters and state stay as they were.""",
        Warmup,
        TRAINING,
    ),
    Option("warmup_runs", "int", 1, """How often each batch of `warmup_inputs` runs.""", Warmup, TRAINING),
    Option(
        "warmup_required",
        "bool",
        True,
        """Whether `capture` requires a warm-up or a first step before it.""",
        Warmup,
        ("train", "loop"),
        ("warmup_required", "state"),
    ),
    Option(
        "name",
        "str",
        "step",
        """The name of the step, in errors, logs and profiles.""",
        reports=("name",),
        apart={"eval": ("str", "eval")},
    ),
    Option(
        "keep_gradients",
        "bool",
        False,
        """Keeps every gradient readable after a step: as `step.gradients`, and as `p.grad`, a copy. An optimizer or a
        `clip_grad_norm_` that you call yourself finds it there. With clipping these are the clipped gradients. Otherwise
        a step leaves no `p.grad`. An evaluation step with gradients is a closure for `torch.optim.LBFGS`.""",
        KeptGradients,
        NOT_IN_LOOPS,
        ("gradients",),
    ),
    Option(
        "meta",
        "Sequence[str]",
        (),
        """Python numbers that the step reads and that may change between steps, such as `"model.alpha"`. `step.guards()`
        lists their names.""",
        HostNumbers,
        reports=("meta",),
    ),
    Option(
        "check_finite",
        "bool",
        False,
        """A loss or a gradient that is NaN or infinite skips the whole step and raises NonFiniteError. On CUDA the error
        comes with the next call that sees it, and nothing trains in between. It looks at gradients before they are
        clipped.""",
        FiniteCheck,
        TRAINING,
    ),
    Option(
        "seed",
        "int | None",
        None,
        """Dropout and other random numbers are a function of seed, step and position in the model. They have the same bits
        eager, replayed and on both devices, except for normal and exponential numbers in f64. The default seed is drawn
        from torch's generator. `step.seed(n)` starts again.""",
        Randomness,
        reports=("seed",),
    ),
    Option(
        "further_sizes",
        "int",
        0,
        """A batch with a new leading size (say, the last of an epoch) is compiled on arrival. Up to this many such plans
        are cached (LRU), in addition to those of `example`.""",
        FurtherSizes,
    ),
    Option(
        "clip_grad_norm",
        "float | Sequence[float] | ClipGradNorm | None",
        None,
        """Limits the norm of all gradients together, as `torch.nn.utils.clip_grad_norm_` does. A sequence limits each
        param group by itself. `ClipGradNorm(1.0, math.inf)` limits another norm than 2. The limit is a host scalar: set
        `step.meta["clip_grad_norm"] = 0.5` between steps. `step.grad_norm` is the norm before clipping.""",
        Clipping,
        TRAINING,
        ("grad_norm",),
    ),
    Option(
        "clip_grad_value",
        "float | None",
        None,
        """Clamps each element of the gradients to [-limit, limit], before their norm is limited. The limit is a host
        scalar too.""",
        Clipping,
        TRAINING,
    ),
    Option(
        "accumulate",
        "int | None",
        None,
        """One update of k micro-batches: a step takes a list of k batches of the shapes of `example`, and `replay(n)` is n
        updates. Loss and gradients are means over the k, as if each loss were divided by k before `backward()`. Running
        statistics and random numbers continue from one micro-batch to the next. A check that fails in one of them skips
        the whole update.""",
        Accumulation,
        TRAINING,
    ),
    Option(
        "accumulate_apart",
        "bool",
        False,
        """With `accumulate=k`: the gradients of each micro-batch are kept, and added when all are there, as k processes of
        `mesh` add them. Then parameters have the bits of such a step, where a sum that is made at once may be a part of
        another launch. It takes the memory of k gradients.""",
        Accumulation,
        TRAINING,
    ),
    Option(
        "metrics",
        "Mapping[str, str] | None",
        None,
        """Outputs to accumulate on the device over steps and replays: `{"accuracy": "mean"}`, by "mean", "sum", "max" or
        "min". `step.metrics(reset=True)` reads them and starts again.""",
        GatheredMetrics,
        reports=("metrics",),
    ),
    Option(
        "precision",
        "PrecisionName | None",
        None,
        """"bf16" and "f16" run model and loss under torch.autocast of the device, with `backward()` outside of it.
        Parameters, optimizer state and updates stay f32. "f32" computes as the model is written, and requires f32
        parameters. With "tf32" the products of model and loss, and of their gradients, may round f32 operands to TF32 on
        a GPU.""",
        StepPrecision,
    ),
    Option(
        "loss_scale",
        "Literal['auto', 'dynamic'] | float | LossScale | None",
        "auto",
        """"dynamic" multiplies the loss before it is differentiated and divides its gradients, by the rules of
        torch.amp.GradScaler; `LossScale(…)` sets its parameters. A number is a fixed scale. A step whose gradients hold an
        inf or NaN changes no parameter and no optimizer state. "auto" is "dynamic" with precision="f16", else None, which
        scales nothing.""",
        LossScaling,
        TRAINING,
        ("loss_scale", "skipped"),
    ),
    Option(
        "ema",
        "float | None",
        None,
        """Keeps an exponential moving average of each trained parameter, with this decay.
        torch.optim.swa_utils.AveragedModel with `get_ema_multi_avg_fn` keeps the same. `step.ema` has copies by the
        names of the parameters. `recompile()` keeps the averages of parameters that are still trained. The average of a
        new parameter starts from its value at that time.""",
        WeightAverage,
        TRAINING,
        ("ema",),
    ),
    Option(
        "plan",
        PATH,
        None,
        """The path of an edited plan, which the step runs in place of its own. The text must come from `step.ir("plan")`
        of the same model, options and shapes. It must bind, update and check the same tensors. A kernel id of "" is
        filled in, and so are all addresses in an edited `step.ir("buffers")`.""",
        EditedPlan,
        reports=("guards", "describe"),
    ),
    Option(
        "lock",
        PATH,
        None,
        """The path of a lock, with the kernels that `aicf-tune` measured for this step on this machine; the step runs
        them. A lock of another machine, or without a kernel for an op of the step, raises LockError, which says
        what differs.""",
        Locked,
        reports=("planned_kernels",),
    ),
    Option(
        "memory_limit",
        "int | None",
        None,
        """The bytes that the arenas of a plan may take: parameters, state, inputs and temporaries. A plan that needs more
        raises BindError before any memory is taken. The limit is for each batch size by itself, also for those that
        `further_sizes` compiles later.""",
        MemoryLimit,
        reports=("memory_report",),
    ),
    Option(
        "mesh",
        "DeviceMesh | ProcessGroup | None",
        None,
        """The processes that take each step together, each with a batch of its own: a process group of torch.distributed, or
        a mesh of one dimension. A step takes the mean of their gradients, and a model in DistributedDataParallel brings its
        group along. Loss, outputs and metrics are those of the own batch. Buffers of the model are those of rank 0; the
        statistics of `nn.SyncBatchNorm` are those of all batches. The loss function may call `all_gather`, `all_reduce` and
        others. A call that fails on one rank changes nothing on any. On GPUs a failed check raises in a later call, the same
        on all ranks. `capture(verify="bitwise")` examines all ranks together, without torch's own step.""",
        DataParallel,
        TRAINING,
    ),
    Option(
        "zero",
        "int",
        0,
        """With 1 each process of `mesh` keeps the optimizer state of its part of the parameters only, and updates these; the
        new parameters are then gathered (ZeRO stage 1). With 2 it keeps the gradients of its part only, too (ZeRO stage 2).
        Results are the same bits; with 2, `clip_grad_norm` on a GPU may differ by rounding. `opt.state`, `step.gradients`
        and `p.grad` have what the process keeps. All processes call `save` together, each with a path of its own; the files
        are those of a step without `zero`. Optimizers that are traced are refused. Of state that an optimizer has already
        each process keeps its part.""",
        DataParallel,
        TRAINING,
        reports=("memory_report",),
    ),
)

ENVIRONMENT: tuple[type[Effect], ...] = (Branching,)
"""Effects of variables of the environment, which every step has."""

F = TypeVar("F", bound=Callable[..., Any])


def options_of(entry: Entry) -> tuple[Option, ...]:
    """Return the options that a function takes."""
    return tuple(option for option in OPTIONS if entry in option.taken_by)


def effects_of(given: Mapping[str, Any]) -> dict[type[Effect], Effect]:
    """Return the effects of arguments by keyword; an effect without an argument among them is made with its defaults."""
    kinds = [option.effect for option in OPTIONS if option.effect is not None]
    taken = {option.effect for option in OPTIONS if option.keyword in given}
    made = {kind: kind.of(given) if kind in taken else kind() for kind in dict.fromkeys(kinds)}
    return made | {kind: kind.of(given) for kind in ENVIRONMENT}


def documented(entry: Entry) -> Callable[[F], F]:
    """Append the options that a function takes to its docstring, for `help`."""

    def with_options(function: F) -> F:
        texts = [
            fill(f"{each.keyword}: {each.text}", 120, subsequent_indent="    ") for each in options_of(entry)
        ]
        function.__doc__ = "\n\n".join([cleandoc(function.__doc__ or ""), "Options:", *texts])
        return function

    return with_options
