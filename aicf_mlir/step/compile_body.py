"""`compile_step` and `train_step`: the body of a training loop as its user writes it, compiled as one step."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import torch

from aicf_mlir.errors import BindError, StateError
from aicf_mlir.frontend import Traced, source
from aicf_mlir.frontend.loop_body import LoopBody, WritesState, trace_loop
from aicf_mlir.frontend.precision import PrecisionName
from aicf_mlir.frontend.structure import Batch
from aicf_mlir.frontend.tracing import refuse_surroundings
from aicf_mlir.host.garbage import cycles_collected
from aicf_mlir.runtime.binding import Built
from aicf_mlir.step.loop_step import CompiledLoopStep
from aicf_mlir.step.options.metrics import GatheredMetrics
from aicf_mlir.step.options.seed import Randomness
from aicf_mlir.step.options.table import documented
from aicf_mlir.step.request import Request

Body = Callable[..., Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopRequest(Request):
    """A request to compile a loop body."""

    body: LoopBody

    @property
    def trains(self) -> bool:
        return True  # without an optimizer, too: its writes to parameters

    def anew(self) -> LoopRequest:
        """Return the request for the objects that the body reaches now: a replaced optimizer or model is accepted."""
        return self._with_states(self.body.states)

    def _with_states(self, states: Sequence[torch.Tensor]) -> LoopRequest:
        body = LoopBody(self.body.function, states, self.body.takes_several)
        optimizers = tuple(body.optimizers.values())
        return replace(self, groups=None, body=body, model=body.model, optimizers=optimizers)

    def built(self) -> tuple[LoopRequest, Built]:
        """Return what `build` returns. A tensor outside of modules that the body writes to becomes a buffer of the step."""
        request = self
        while True:
            try:
                return request, request.build()
            except WritesState as found:
                if any(found.tensor is state for state in request.body.states):
                    raise
                request = request._with_states((*request.body.states, found.tensor))

    def trace_group(
        self, batch: Batch | None, size: int | None, host_values: Mapping[torch.Tensor, str]
    ) -> Traced:
        if batch is None:
            raise BindError("compile_step needs a batch to trace the loop body with: example=…")
        return trace_loop(
            self.body,
            batch,
            name=self.name,
            host_values=host_values,
            random=self.effect(Randomness).state,
            metrics=self.effect(GatheredMetrics).metrics,
            precision=self.precision_here,
        )


@documented("loop")
def compile_step(
    body: Body,
    *,
    example: Batch | Sequence[Batch],
    device: str | torch.device | None = None,
    warmup_required: bool = True,
    name: str = "step",
    meta: Sequence[str] = (),
    seed: int | None = None,
    further_sizes: int = 0,
    metrics: Mapping[str, str] | None = None,
    precision: PrecisionName | None = None,
    plan: str | os.PathLike[str] | None = None,
    lock: str | os.PathLike[str] | None = None,
    memory_limit: int | None = None,
) -> CompiledLoopStep:
    """Compile the body of a training loop, a function of a batch, as its user writes it:

        def body(batch):
            opt.zero_grad()
            loss = loss_of(model(batch["x"]), batch["t"])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            scheduler.step()
            return loss

    Models, optimizers and schedulers are found in its closure, its globals, its object or a model, any number of each
    (the two of a GAN). `step(batch)` is one call of it. It returns new objects: tensors, numbers read from them and
    constants, in tuples, lists, dictionaries and data classes. `step.train_step`, `capture` and `replay` work as for
    `compile_train_step`, whose options have the same names here. They return the last loss on which the body called
    `backward()`, or whose gradient it took.

    A value that the body writes to a parameter, by `.data`, under no_grad or in a view, becomes its new value. The same
    holds for any other tensor that it reaches. `loss.item()`, `.tolist()` and `.numpy()` give numbers that are known
    after the step.

    The verbs are `zero_grad`, `backward`, `step` of optimizers, `step` of schedulers, and those of a GradScaler, each as
    in torch; between them `p.grad` is a tensor to compute with. Anything else that an optimizer, a scheduler or a
    scaler can do is refused by name, with the line: it would happen once. Schedulers step on the host, after each step.
    A parameter has no `.grad` when the call is over.

    A body that sets numbers of its param groups does so before the first or after the last step of the optimizer. Python
    does that before or after each step, as it keeps sums, counters and logs of numbers, and prints them.

    With a `precision` the body runs under torch.autocast. `backward()` and the steps of optimizers work as outside
    of it, but a product of gradients between the two computes in `precision` too. `torch.autocast(…,
    enabled=False)` prevents that. For "f16" a body scales its loss by a GradScaler. With "tf32" products of the
    body may round their operands; products of an optimizer do not.

    Raises TraceError for code that cannot be expressed, with the user's line.
    """
    arguments = locals()
    return _compiled(LoopBody(body), arguments)


def _compiled(traced: LoopBody, arguments: Mapping[str, Any]) -> CompiledLoopStep:
    refuse_surroundings(source.here())
    optimizers = tuple(traced.optimizers.values())
    request = LoopRequest.of("loop", traced.model, optimizers, arguments, body=traced)
    with cycles_collected():
        return CompiledLoopStep(*request.built())


class LoopFunction:
    """A loop body that is compiled on its first batch; made by `aicf_mlir.train_step`."""

    def __init__(self, body: Body, options: Mapping[str, Any]):
        functools.update_wrapper(self, body)
        self._body = body
        self._options = options
        self._step: CompiledLoopStep | None = None

    @property
    def step(self) -> CompiledLoopStep:
        """The compiled step. Raises BindError before the first call."""
        if self._step is None:
            raise BindError(
                "the loop body is compiled when its first batch comes; call it once, or use compile_step"
            )
        return self._step

    @property
    def loss(self) -> torch.Tensor:
        """The loss of the last step, a copy. Raises StateError before the first call."""
        if self._step is None:
            raise StateError("the loop body has not been called yet")
        return self._step.loss

    def __call__(self, *batch: Any) -> Any:
        """Run one call of the body and return its result."""
        if self._step is None:
            given = batch[0] if len(batch) == 1 else batch
            example = given if isinstance(given, torch.Tensor) else [given]
            bound = inspect.signature(compile_step).bind(self._body, example=example, **self._options)
            bound.apply_defaults()
            takes_several = True if len(batch) > 1 else None
            self._step = _compiled(LoopBody(self._body, (), takes_several), bound.arguments)
        return self._step(*batch)


@overload
def train_step(body: Body, /) -> LoopFunction: ...
@overload
def train_step(**options: Any) -> Callable[[Body], LoopFunction]: ...
def train_step(body: Body | None = None, /, **options: Any) -> LoopFunction | Callable[[Body], LoopFunction]:
    """Decorate a loop body: it is compiled on its first batch, and called as before.

    Write `@aicf_mlir.train_step` or `@aicf_mlir.train_step(device="cpu", …)`, with the options of `compile_step`. The
    compiled step is `body.step`.
    """
    if body is None:
        return lambda each: LoopFunction(each, options)
    return LoopFunction(body, options)
