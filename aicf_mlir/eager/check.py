"""A compiled step beside torch's own, from the same state, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch

from aicf_mlir.eager.judge import decided_by, judge
from aicf_mlir.eager.layers import LayerOutputs
from aicf_mlir.eager.live import Live, is_whole, moved, on_host
from aicf_mlir.eager.report import Comparison, Difference
from aicf_mlir.eager.torch_step import Results, TorchStep
from aicf_mlir.frontend.structure import mapped

RUNS = 4
"""Runs of torch from a moved state: what rounding does to this very step."""


@dataclass(frozen=True, eq=False)
class Contender:
    """A compiled step, as a comparison drives it."""

    name: str
    device: str
    run: Callable[[], Results]
    """One step further."""
    keep: Callable[[], object]
    put_back: Callable[[object], None]
    """What `keep` has given."""
    layer: Callable[[LayerOutputs, Sequence[str]], str | None]
    """The first layer that differs, from what torch's layers gave and the names of the tensors that differ."""


@dataclass(frozen=True)
class Seen:
    """What one run has changed."""

    results: dict[str, torch.Tensor]
    before: dict[str, torch.Tensor]
    after: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]

    def value(self, name: str) -> torch.Tensor | None:
        """What is compared: the movement of parameters and buffers, everything else as it is."""
        if name in self.results:
            return self.results[name]
        if (now := self.after.get(name)) is None:
            return None
        before = self.before.get(name)
        return now - before if before is not None and is_moved(name) and before.shape == now.shape else now


def is_moved(name: str) -> bool:
    """Whether the change of a tensor says more than its value: a rate that is 1 % off shows there."""
    return name.startswith(("parameter", "buffer"))


def beside_torch(
    contender: Contender, live: Live, torch_step: TorchStep, steps: int, unit: float
) -> Comparison:
    """Compare `steps` steps, each from the contender's own state; the state afterwards is the caller's to put back."""
    rows: list[Difference] = []
    layer: str | None = None
    for number in range(1, steps + 1):
        start = contender.keep()
        with LayerOutputs.of(live.modules[""]) as outputs:
            truth = _torch(live, torch_step, None, unit)
        contender.put_back(start)
        runs: list[Seen] = []
        for seed in range(RUNS):
            runs.append(_torch(live, torch_step, seed, unit))
            contender.put_back(start)
        before = live.observed()
        results = _named(contender.run())
        ours = Seen(results, before, live.observed(), {})
        found = _differences(number, ours, truth, runs, live)
        rows += found
        wrong = [row.name for row in found if row.why]
        if wrong and layer is None:
            after = contender.keep()
            contender.put_back(start)
            with suppress(KeyError):
                layer = contender.layer(outputs, wrong)
            contender.put_back(after)
    return Comparison(contender.name, contender.device, steps, tuple(rows), layer)


def _torch(live: Live, torch_step: TorchStep, seed: int | None, unit: float) -> Seen:
    """One step of torch; with a `seed`, from parameters and inputs that are moved by up to `unit`. Its caller puts back."""
    with live.kept():
        batch = live.batch
        if seed is not None:
            generator = torch.Generator().manual_seed(seed)
            moved(live.parameters, unit, generator)
            batch = mapped(torch.Tensor.clone, batch)
            entries: list[torch.Tensor] = []
            mapped(entries.append, batch)
            moved([entry for entry in entries if not is_whole(entry)], unit, generator)
        before = live.observed()
        results = _named(torch_step(batch))
        return Seen(results, before, live.observed(), live.gradients())


def _named(results: Results) -> dict[str, torch.Tensor]:
    return {name if name == "loss" else f"output {name!r}": on_host(value) for name, value in results.items()}


def _differences(number: int, ours: Seen, truth: Seen, runs: Sequence[Seen], live: Live) -> list[Difference]:
    decided = {
        name: decided_by(gradient, [run.gradients[name] for run in runs if name in run.gradients])
        for name, gradient in truth.gradients.items()
    }
    units = _units(live)
    rows: list[Difference] = []
    for name in dict.fromkeys((*truth.results, *truth.after, *ours.after)):
        wanted, got = truth.value(name), ours.value(name)
        if wanted is None or got is None:
            who = "torch" if got is None else "the compiled step"
            rows.append(Difference(number, name, torch.inf, 0.0, f"only {who} has it"))
            continue
        others = [value for run in runs if (value := run.value(name)) is not None]
        unit = units.get(name, units[""])
        slack = unit * truth.before[name].abs() if is_moved(name) and name in truth.before else 0.0
        owner = _owner(name)
        mask = decided.get(owner) if owner in decided and decided[owner].shape == wanted.shape else None
        judged = judge(got, wanted, others, unit, slack, mask)
        rows.append(Difference(number, name, judged.error, judged.allowed, judged.why))
    return rows


def _owner(name: str) -> str:
    """The parameter that a state or an average belongs to, as a report calls it."""
    if name.startswith("state "):
        return f"parameter {name.rpartition(' of ')[2]}"
    return name.replace("buffer 'ema.", "parameter '")


def _units(live: Live) -> dict[str, float]:
    """A unit in the last place of 1, by the name of each parameter; under "" that of everything else."""
    floats = {name: torch.finfo(p.dtype).eps for name, p in live.trained.items() if p.is_floating_point()}
    return {"": max(floats.values(), default=2.0**-23), **{f"parameter {n!r}": eps for n, eps in floats.items()}}
