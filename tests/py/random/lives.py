"""A compiled training and its mirror in torch: two steps over one model and optimizer, each with options of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from mirror import Mirror, kept, read
from models import Batch, to_device
from step_options import NESTINGS, Options, loss_of_nested, options_of
from torch import nn
from torch.nn import functional as F
from written_optimizers import RIGHT

from aicf_mlir import CompiledTrainStep, StateError, compile_eval_step, compile_step, compile_train_step

ROWS = 4
"""Of a batch, where a step has no further sizes."""


def first_loss(y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(y, t)


def second_loss(y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return F.gelu(y - t).square().mean() + 0.1 * y.square().mean()


@dataclass(frozen=True)
class Loss:
    """Of a model and a nested batch, with outputs or without."""

    value: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    nesting: str = "flat"
    tells: bool = False

    def __call__(self, model: Any, batch: Any) -> Any:
        return loss_of_nested(self.value, self.nesting, self.tells, model, batch)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


# None with a state of its own that torch keeps in f32, as NAdam's product of momenta: all is compared in float64.
OPTIMIZERS: list[Callable[[Any], torch.optim.Optimizer]] = [
    lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.25),
    lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    lambda p: torch.optim.Adam(p, lr=0.02),
    lambda p: torch.optim.AdamW(p, lr=0.02, amsgrad=True),
    lambda p: torch.optim.Adamax(p, lr=0.02, weight_decay=0.01),
    lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True, eps=1e-3),
    lambda p: torch.optim.RAdam(p, lr=0.01, weight_decay=0.01),
    lambda p: torch.optim.ASGD(p, lr=0.02, t0=3, lambd=0.1),
]


def body_of(model: nn.Module, optimizer: torch.optim.Optimizer, loss_of: Loss, options: Options) -> Any:
    """A loop body that clips as `options` say, and returns what its step tells."""
    limit, clip = options.clip_grad_value, options.clip_grad_norm

    def body(batch: Any) -> Any:
        optimizer.zero_grad()
        answer = loss_of(model, batch)
        loss, outputs = answer if isinstance(answer, tuple) else (answer, {})
        loss.backward()
        if limit is not None:
            nn.utils.clip_grad_value_(model.parameters(), limit)
        if clip is not None:
            norm: Any = clip.max_norm
            outputs = {
                **outputs,
                "grad_norm": nn.utils.clip_grad_norm_(model.parameters(), norm, clip.norm_type),
            }
        optimizer.step()
        return loss, outputs

    return body


class Both:
    """One of the two steps, compiled and mirrored."""

    def __init__(self, life: Training, loss: Callable[..., torch.Tensor], draw: random.Random):
        options = options_of(draw) if draw.random() < 0.6 else Options()
        if options.accumulate is None and draw.random() < 0.3:
            options = replace(options, further_sizes=1)
        self.is_body = options.is_writable and draw.random() < 0.4
        """Whether the step is a loop body that says all this itself."""
        tells = bool(options.metrics) or draw.random() < 0.3
        self.loss = Loss(loss, draw.choice(("flat", *NESTINGS)), tells)
        self.device = life.device
        self.mirror = Mirror(life.mirror, life.other, self.loss, options)
        example = [self.nested(life.batch())]
        if self.is_body:
            body = body_of(life.model, life.optimizer, self.loss, options)
            more = {"metrics": options.metrics, "further_sizes": options.further_sizes}
            self.step: CompiledTrainStep = compile_step(body, example=example, device=life.device, **more)
        else:
            self.step = compile_train_step(
                life.model,
                life.optimizer,
                loss_fn=self.loss,
                example=example,
                device=life.device,
                **options.arguments,
            )
        self.parts: Sequence[Batch] | None = None
        """What was loaded last."""

    @property
    def options(self) -> Options:
        """As they are now: limits may change."""
        return self.mirror.options

    def nested(self, batch: Batch) -> Any:
        """A batch as the loss takes it."""
        return NESTINGS[self.loss.nesting][0](batch)

    def given(self, parts: Sequence[Batch]) -> Any:
        """What the compiled step takes."""
        nested = [self.nested(to_device(part, self.device)) for part in parts]
        return nested if self.options.accumulate is not None else nested[0]

    def eager(self, parts: Sequence[Batch]) -> torch.Tensor:
        """A step of torch."""
        return self.mirror.step([self.nested(part) for part in parts])

    def check_told(self) -> None:
        """What the last step has told is torch's."""
        same(read(self.step, self.options), self.mirror.read())

    def check_kept(self) -> None:
        """Metrics, averages and scale are torch's."""
        same(kept(self.step, self.options), self.mirror.kept())


def same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    """The same names, and values but for rounding."""
    assert sorted(ours) == sorted(theirs)
    for name, value in theirs.items():
        got, wanted = ours[name].double().cpu(), value.double()
        torch.testing.assert_close(
            got, wanted, rtol=1e-8, atol=1e-11, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}"
        )


class Training:
    """What a life changes."""

    def __init__(self, seed: int, device: str, folder: Path):
        self.random, self.device, self.folder = random.Random(seed), device, folder
        make = OPTIMIZERS[seed % len(OPTIMIZERS)]
        if self.random.random() < 0.4:
            make = RIGHT[self.random.choice(list(RIGHT))]
        self.model, self.mirror = network().to(device), network()
        self.optimizer, self.other = make(self.model.parameters()), make(self.mirror.parameters())
        self.both = [Both(self, loss, self.random) for loss in (first_loss, second_loss)]
        self.evaluate = compile_eval_step(
            self.model, loss_fn=Loss(first_loss), example=to_device(self.batch(), device), device=device
        )

    def __repr__(self) -> str:
        steps = "; ".join(
            f"{both.options}, {both.loss}{', a body' if both.is_body else ''}" for both in self.both
        )
        return f"{type(self.optimizer).__name__}: {steps}"

    def batch(self, rows: int = ROWS) -> Batch:
        """A flat batch, on the CPU."""
        generator = torch.Generator().manual_seed(self.random.randrange(10**6))
        shapes = {"x": (rows, 5), "t": (rows, 3)}
        return {k: torch.randn(s, generator=generator, dtype=torch.float64) for k, s in shapes.items()}

    def parts(self, both: Both, rows: int | None = None) -> list[Batch]:
        """The micro-batches of a step."""
        if rows is None:
            rows = self.random.choice((ROWS, ROWS, 2, 7)) if both.options.further_sizes else ROWS
        return [self.batch(rows) for _ in range(both.options.parts)]

    def run(self, both: Both, parts: Sequence[Batch]) -> None:
        """One step of both."""
        both.parts = parts
        same({"loss": both.step.train_step(both.given(parts))}, {"loss": both.eager(parts)})
        both.check_told()

    def repeat(self, both: Both, n: int, new: Sequence[Batch] | None) -> None:
        """Some replays, captured before where they are not, of a new batch or of that before."""
        step, parts = both.step, new or both.parts or self.parts(both, ROWS)
        if both.parts is None or step.state in ("created", "reset"):
            step.warmup(both.given(parts))
            new = None
        both.parts = parts
        try:
            loss = step.replay(n, inputs=None if new is None else both.given(new))
        except StateError:
            step.capture(both.given(parts))
            loss = step.replay(n)
        expected = [both.eager(parts) for _ in range(n)]
        same({"loss": loss}, {"loss": expected[-1]})
        both.check_told()

    def check(self) -> None:
        """Parameters, optimizer state, entry for entry, and what each step keeps are equal."""
        for p, q in zip(self.model.parameters(), self.mirror.parameters(), strict=True):
            same({"parameter": p.detach()}, {"parameter": q.detach()})
            ours, theirs = (
                {
                    name: torch.as_tensor(value)
                    for name, value in optimizer.state.get(parameter, {}).items()
                    if value is not None
                }
                for optimizer, parameter in ((self.optimizer, p), (self.other, q))
            )
            same(ours, theirs)
        for both in self.both:
            both.check_kept()
