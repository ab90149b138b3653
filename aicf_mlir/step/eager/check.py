"""A compiled step compared with torch's own, from the same state, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from aicf_mlir.errors import AicfError, UncomparedError
from aicf_mlir.frontend.structure import mapped
from aicf_mlir.step.eager.judge import Spread, decided_by, judge, rms
from aicf_mlir.step.eager.layers import LayerOutputs
from aicf_mlir.step.eager.live import Live, is_whole, moved, on_host
from aicf_mlir.step.eager.report import Comparison, Difference
from aicf_mlir.step.eager.roundings import MovedRoundings, by_a_unit
from aicf_mlir.step.eager.tf32 import tf32
from aicf_mlir.step.eager.ties import FirstOfEqual
from aicf_mlir.step.eager.torch_step import Results, TorchStep

RUNS = 4, 24
"""The number of torch runs from a moved state, which show the effect of rounding on this very step; the larger number
is used if a tensor differs.

If an update divides a small gradient by its own size, an element may be moved further than all of a few runs show. The
further runs also move what each op rounds: a gradient that cancels is nothing else, as behind a norm of two elements.
"""

FLOOR = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}
"""The error that is always allowed, relative to the scale of a tensor, by the type of a parameter."""
LOW_UNITS = 2.0
"""Units in the last place of the products' type: rounding of intermediate values that no moved parameter represents."""
NOISE = 0.05
"""The relative error of a state's element above which an update may divide noise by noise, though the state as a whole
is right.
"""


GRADIENT = "gradient of "
"""The prefix of gradient names, followed by the parameter's name."""


@dataclass(frozen=True, eq=False)
class Contender:
    """A compiled step, as a comparison drives it."""

    name: str
    device: str
    run: Callable[[], Results]
    """Runs one step further."""
    gradients: Callable[[], Mapping[str, torch.Tensor]]
    """The gradients of the last step by parameter name, if the step keeps them."""
    keep: Callable[[], object]
    put_back: Callable[[object], None]
    """Restores the state that `keep` has returned."""
    layer: Callable[[LayerOutputs, Sequence[str]], str | None]
    """The first layer that differs, found from the outputs of torch's layers and the names of the tensors that differ."""
    has_tf32: bool
    """True if its products may round f32 operands to TF32."""


@dataclass(frozen=True)
class Seen:
    """The changes made by one run."""

    results: dict[str, torch.Tensor]
    before: dict[str, torch.Tensor]
    after: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]

    def value(self, name: str) -> torch.Tensor | None:
        """Return the value to compare: the movement of parameters and buffers, everything else as it is."""
        if name in self.results:
            return self.results[name]
        if name.startswith(GRADIENT):
            return self.gradients.get(name.removeprefix(GRADIENT))
        if (now := self.after.get(name)) is None:
            return None
        before = self.before.get(name)
        return now - before if before is not None and is_moved(name) and before.shape == now.shape else now

    @property
    def names(self) -> list[str]:
        """The names of all that there is to compare."""
        return [*self.results, *(GRADIENT + name for name in self.gradients), *self.after]

    def fills_in(self, name: str) -> bool:
        """True if it is a buffer that had no value before."""
        has_value = [
            (held := of.get(name)) is not None and held.numel() > 0 for of in (self.before, self.after)
        ]
        return name.startswith("buffer") and has_value == [False, True]


def is_moved(name: str) -> bool:
    """True if the change of a tensor tells more than its value: a rate that is 1 % off shows there."""
    return name.startswith(("parameter", "buffer"))


def beside_torch(
    contender: Contender,
    live: Live,
    torch_step: TorchStep,
    steps: int,
    unit: float,
    exact: Callable[[bool], tuple[Live, TorchStep]] | None = None,
) -> Comparison:
    """Compare `steps` steps, each from the contender's own state; the state afterwards is the caller's to put back.

    `exact` makes the same step in f64 of the live objects as they are, without its update if asked. With `exact`, that
    step is the reference, and the compiled step may be three times as far from it as torch.
    """
    with tf32(contender.has_tf32):
        rows, layer = _steps_beside_torch(contender, live, torch_step, steps, unit, exact)
    return Comparison(contender.name, contender.device, steps, tuple(rows), layer, exact is not None)


def _steps_beside_torch(
    contender: Contender,
    live: Live,
    torch_step: TorchStep,
    steps: int,
    unit: float,
    exact: Callable[[bool], tuple[Live, TorchStep]] | None,
) -> tuple[list[Difference], str | None]:
    """Return the rows of all steps, and the first layer that differs."""
    rows: list[Difference] = []
    layer: str | None = None
    for number in range(1, steps + 1):
        start = contender.keep()
        with LayerOutputs.of(live.modules[""]) as outputs:
            truth = _torch(live, torch_step, None, unit)
        contender.put_back(start)
        first_run: Seen | None = None
        if exact is not None:
            overflow = truth.value("buffer 'loss_scale.skipped'")
            first_run, truth = truth, _torch(*exact(overflow is not None and bool(overflow)), None, unit)
            contender.put_back(start)  # a state in float64 is its own stand-in
        spreads = {
            name: Spread.around(value) for name in truth.names if (value := truth.value(name)) is not None
        }
        if first_run is not None:
            widen(spreads, first_run)
            del first_run
        before = live.observed()
        results = _named(contender.run())
        gradients = {f"parameter {name!r}": on_host(value) for name, value in contender.gradients().items()}
        ours = Seen(results, before, live.observed(), gradients)
        after = contender.keep()
        differences: list[Difference] = []
        wrong: list[str] = []
        for first, count in pairwise((0, *RUNS)):
            for seed in range(first, count):
                contender.put_back(start)
                widen(spreads, _torch(live, torch_step, seed, unit, rounds_otherwise=first > 0))
            differences = _differences(number, ours, truth, spreads, live, unit, exact is not None)
            wrong = [row.name for row in differences if row.why]
            if not wrong:
                break
        rows += differences
        if wrong and layer is None:
            contender.put_back(start)
            with suppress(KeyError):
                layer = contender.layer(outputs, wrong)
        contender.put_back(after)
    return rows, layer


def _torch(
    live: Live, torch_step: TorchStep, seed: int | None, unit: float, *, rounds_otherwise: bool = False
) -> Seen:
    """Run one step of torch; with a `seed`, from parameters and inputs that are moved by up to `unit`, and with ops that
    round otherwise if asked. The caller puts the state back.

    Attention is computed as torch defines it: its fused CPU kernel is wrong where all scores of a row are huge, in f64
    too, and fused kernels draw their dropout inside of themselves. Equal elements keep their order, which torch leaves
    open.
    """
    with live.kept():
        batch = live.batch
        ops = nullcontext()
        if seed is not None:
            generator = torch.Generator().manual_seed(seed)
            moved(live.parameters, unit, generator)
            batch = mapped(torch.Tensor.clone, batch)
            entries: list[torch.Tensor] = []
            mapped(entries.append, batch)
            moved([entry for entry in entries if not is_whole(entry)], unit, generator)
            ops = MovedRoundings(by_a_unit(seed)) if rounds_otherwise else ops
        before = live.observed()
        try:
            with sdpa_kernel(SDPBackend.MATH), ops, FirstOfEqual():
                results = _named(torch_step(batch))
        except AicfError:
            raise
        except Exception as error:
            reason = str(error).strip().splitlines()[:1] or [""]
            raise UncomparedError(f"torch's own step fails: {type(error).__name__}: {reason[0]}") from error
        return Seen(results, before, live.observed(), live.gradients())


def _named(results: Results) -> dict[str, torch.Tensor]:
    return {name if name == "loss" else f"output {name!r}": on_host(value) for name, value in results.items()}


def widen(spreads: Mapping[str, Spread], run: Seen) -> None:
    """Add a run of torch: all that is kept of it, whatever the number of runs and the size of a model."""
    for name, spread in spreads.items():
        if (value := run.value(name)) is not None:
            spread.widen(value)


def _differences(
    number: int,
    ours: Seen,
    truth: Seen,
    spreads: Mapping[str, Spread],
    live: Live,
    unit: float,
    is_exact: bool,
) -> list[Difference]:
    """Return a row for every tensor. States come first: if one is right and small, its parameter's movement may be noise."""
    decided = {name: decided_by(spreads[GRADIENT + name], unit) for name in truth.gradients}
    gradients = [GRADIENT + name for name in ours.gradients]
    names = dict.fromkeys((*truth.results, *gradients, *truth.after, *(() if is_exact else ours.after)))
    # a table that torch keeps, and that the compiled step computes each time, is no state
    names = [name for name in names if ours.fills_in(name) or not truth.fills_in(name)]
    rows: dict[str, Difference] = {}
    units = _by_parameter(live, {dtype: torch.finfo(dtype).eps for dtype in FLOOR})
    floors = _by_parameter(live, FLOOR)
    normal = _by_parameter(live, {dtype: torch.finfo(dtype).smallest_normal for dtype in FLOOR})
    kinds: dict[str, float] = {}
    for name in names:
        if (spread := spreads.get(name)) is not None and (kind := _kind(name)):
            kinds[kind] = max(kinds.get(kind, 0.0), rms(spread.truth[spread.truth.isfinite()]))
    for name in sorted(names, key=lambda name: not name.startswith("state ")):
        spread, got = spreads.get(name), ours.value(name)
        if spread is None or got is None:
            who = "torch" if got is None else "the compiled step"
            rows[name] = Difference(number, name, torch.inf, 0.0, f"only {who} has it")
            continue
        wanted = spread.truth
        own = units.get(name, units[""])
        slack = own * truth.before[name].abs() if is_moved(name) and name in truth.before else 0.0
        owner = _owner(name)
        mask = decided.get(owner)
        mask = mask if mask is not None and mask.shape == wanted.shape else None
        floor = max(floors.get(owner, floors[""]), LOW_UNITS * unit)
        kindred = max(
            kinds.get(_kind(name), 0.0), normal.get(owner, normal[""])
        )  # below it, all units are equally large
        judged = judge(got, spread, floor, slack, kindred, mask)
        rows[name] = Difference(number, name, judged.error, judged.allowed, judged.why)
        if name.startswith("state ") and not judged.why and mask is not None:
            decided[owner] = mask & ~((got - wanted).abs() > NOISE * wanted.abs())
    return [rows[name] for name in names]


def _kind(name: str) -> str:
    """Return the kind of a tensor that follows from gradients: parameters move alike, and states of one name have
    similar sizes.
    """
    if name.startswith("state "):
        return name.partition(" of ")[0]
    return name.partition("'")[0] if name.startswith((GRADIENT, "parameter ")) else ""


def _owner(name: str) -> str:
    """Return the parameter that a state or an average belongs to, as a report names it."""
    if name.startswith("state "):
        return f"parameter {name.rpartition(' of ')[2]}"
    return name.replace("buffer 'ema.", "parameter '")


def _by_parameter(live: Live, values: Mapping[torch.dtype, float]) -> dict[str, float]:
    """Return the value for each parameter's type by the parameter's name in a report; under "" the largest, for
    everything else.
    """
    found = {name: values[p.dtype] for name, p in live.trained.items() if p.dtype in values}
    rest = max(found.values(), default=values[torch.float32])
    return {"": rest, **{f"parameter {name!r}": value for name, value in found.items()}}
