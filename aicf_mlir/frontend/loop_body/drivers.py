"""Optimizers and schedulers while a loop body is traced: a closed set of verbs; any other use is refused by name."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_pre_hook

from aicf_mlir.frontend import source
from aicf_mlir.frontend.library import is_librarys
from aicf_mlir.frontend.loop_body.averaged import written_with_tensors
from aicf_mlir.frontend.loop_body.found import innermost
from aicf_mlir.frontend.loop_body.gradients import GradientRecorder
from aicf_mlir.frontend.loop_body.numbers import Number
from aicf_mlir.frontend.loop_body.python_state import Request
from aicf_mlir.frontend.loop_body.scalers import Scaling
from aicf_mlir.frontend.loop_body.shown import replaced
from aicf_mlir.frontend.source import quoted, trace_error

STEP_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
HOOKED = torch.optim.Optimizer.profile_hook_step(lambda: None).__code__
"""The code in which torch wraps the `step` of each class, to call hooks."""
ALIVE = "it is alive in the compiled step: leave it to opt.step(), or return it"


class ShownGroup(dict[str, Any]):
    """A param group that shows a body its parameters, and numbers with their values after the step."""

    def __init__(self, optimizer: torch.optim.Optimizer, group: Mapping[str, Any], drivers: Drivers):
        super().__init__({"params": group["params"]})
        self._optimizer = optimizer
        self._group = group
        self._number = partial(drivers.number, optimizer)
        self._drivers = drivers

    def __missing__(self, key: object) -> Any:
        if key not in self:
            raise KeyError(key)
        value = self._group.get(str(key))
        if type(value) not in (int, float):
            raise _refused(f"reads param_groups[…][{key!r}]", ALIVE)
        return self._number(f"reads param_groups[…][{key!r}]", operator.getitem, self._group, key)

    def get(self, key: object, default: Any = None) -> Any:
        """Get a value as `group[key]` does."""
        return self[key] if self._drivers.has(self._group, key) else default  # pyright: ignore[reportArgumentType]

    def __contains__(self, key: object) -> bool:
        return self._drivers.has(self._group, key)

    def __iter__(self) -> Iterator[str]:
        raise _refused("goes through param_groups[…]", "a loop body sees their parameters, group['params']")

    keys = values = items = __iter__  # pyright: ignore[reportAssignmentType]

    def __setitem__(self, key: object, value: object) -> None:
        self._drivers.set(self._optimizer, self._group, key, value)


def own_numbers(value: Any) -> Iterator[Number]:
    """Yield the numbers of param groups from which a value is computed."""
    if isinstance(value, Number):
        if value.is_alive:
            yield value
        for part in value.parts:
            yield from own_numbers(part)


@dataclass(frozen=True)
class Entry:
    """An entry that a param group may have."""

    group: Mapping[str, Any]
    key: object

    def __str__(self) -> str:
        return f"{self.key!r} in a param group"

    kept = ()

    def differences(self) -> tuple[()]:
        """Return nothing: it has no earlier value."""
        return ()

    def now(self) -> bool:
        """Return True if it has it."""
        return self.key in self.group


@dataclass(frozen=True)
class GroupNumber:
    """A number of an optimizer's in one of its param groups."""

    optimizer: str
    group: dict[str, Any]
    key: str
    value: Any

    def copied(self) -> Any:
        """Return its value as an object of its own, where Python makes one: to store the same value is a write too."""
        kind: object = type(self.value)  # pyright: ignore[reportUnknownVariableType]
        if kind is float:
            return self.value + 0.0
        return (*self.value,) if kind is tuple else self.value


class Drivers:
    """The verbs of a body's optimizers and schedulers while it is traced."""

    def __init__(
        self,
        optimizers: Mapping[str, torch.optim.Optimizer],
        schedulers: Mapping[str, LRScheduler],
        scalers: Mapping[str, torch.amp.GradScaler],
        recorder: GradientRecorder,
        wrappers: Sequence[torch.optim.Optimizer] = (),
    ):
        self._optimizers = optimizers
        self._schedulers = schedulers
        self._scalers = scalers
        self._recorder = recorder
        self._wrappers = wrappers
        self.opening: list[Request] = []
        """The numbers that are set in param groups before each step."""
        self._asked: list[torch.optim.Optimizer] = []
        """The optimizers of which a number was read."""
        self.calls: list[Request] = []
        """The calls of schedulers and the numbers set in param groups, in their order, with their arguments."""
        self._stepped: list[torch.optim.Optimizer] = []
        """The optimizers that the body has stepped, and those whose rates it has changed."""
        self._changed: list[torch.optim.Optimizer] = []

    @contextmanager
    def traced(self) -> Generator[None]:
        """Limit optimizers and schedulers to the verbs inside."""
        self.calls, self.opening, self._asked, self._stepped, self._changed = [], [], [], [], []
        drivers = (*self._optimizers.values(), *self._schedulers.values(), *self._scalers.values())
        drivers += tuple(self._wrappers)
        kinds = [(driver, driver.__class__) for driver in drivers]
        numbers = [
            GroupNumber(name, group, key, value)
            for name, optimizer in self._optimizers.items()
            for group in optimizer.param_groups
            for key, value in group.items()
            if key in optimizer.defaults and type(value) in (float, int, bool, tuple)
        ]
        scalings = [
            (name, scaler, Scaling(name, scaler, _params_of)) for name, scaler in self._scalers.items()
        ]
        hook = register_optimizer_step_pre_hook(_unknown)
        try:
            for name, optimizer in self._optimizers.items():
                groups = [ShownGroup(optimizer, group, self) for group in optimizer.param_groups]
                params = [param for group in optimizer.param_groups for param in group["params"]]
                _limit(name, optimizer, self._verbs(name, optimizer, params, groups))
            for name, scheduler in self._schedulers.items():
                _limit(
                    name,
                    scheduler,
                    {
                        "step": self._scheduler_step(name, scheduler),
                        "get_last_lr": self._last_rates(scheduler),
                        "optimizer": scheduler.optimizer,
                    },
                )
            for wrapper in self._wrappers:
                _without_hooks(wrapper)
            for name, scaler, scaling in scalings:
                _limit(name, scaler, scaling.verbs)
            with written_with_tensors(), replaced(self._recorder.book, self.calls), _unwritten(numbers):
                yield
            for *_, scaling in scalings:
                scaling.end()
        finally:
            hook.remove()
            for driver, kind in kinds:
                object.__setattr__(driver, "__class__", kind)

    def set(
        self, optimizer: torch.optim.Optimizer, group: Mapping[str, Any], key: object, value: Any
    ) -> None:
        """Handle `group[key] = value`."""
        what = f"sets param_groups[…][{key!r}]"
        is_stepped = any(stepped is optimizer for stepped in self._stepped)
        if not isinstance(value, (int, float, Number)):
            raise _refused(f"{what} to {type(value).__name__}", "set it to a number")
        if self._asked.count(optimizer) > len(list(own_numbers(value))):
            raise _refused(f"{what} behind a read of a rate that it changes", "read the rate last")
        self._asked = [asked for asked in self._asked if asked is not optimizer]
        if not is_stepped:
            if isinstance(value, Number) and value.places:
                raise _refused(f"{what} to a value of the step before opt.step()", "set it behind opt.step()")
            self.opening.append((group, "__setitem__", (key, value), {}))
            return
        self._changed.append(optimizer)
        self.calls.append((group, "__setitem__", (key, value), {}))

    def has(self, group: Mapping[str, Any], key: object) -> bool:
        """Handle `key in group`."""
        is_there = key in group
        self._recorder.book.needed.append((Entry(group, key), is_there))
        return is_there

    def _verbs(
        self,
        name: str,
        optimizer: torch.optim.Optimizer,
        params: list[torch.Tensor],
        groups: list[ShownGroup],
    ) -> dict[str, Any]:
        is_described = is_librarys(type(optimizer).step)

        def step(closure: Callable[[], Any] | None = None, *, taken: torch.Tensor | None = None) -> Any:
            if closure is not None and not is_described:
                raise _refused(f"calls {name}.step(closure)", "call backward() before step()")
            loss = None if closure is None else closure()
            if any(changed is optimizer for changed in self._changed):
                raise _refused(
                    f"calls {name}.step() behind the step of its scheduler, or behind setting its numbers",
                    "step the scheduler last",
                )
            if not self._recorder.update(params, taken):
                raise _refused(
                    f"calls {name}.step() where no parameter has a gradient", "call backward() before"
                )
            self._stepped.append(optimizer)
            return loss

        def zero_grad(set_to_none: bool = True) -> None:
            for param in params:
                self._recorder.zero(self._recorder.twin(param), set_to_none)

        return {"step": step, "zero_grad": zero_grad, "param_groups": groups}

    def number(
        self, optimizer: torch.optim.Optimizer, what: str, now: Callable[..., Any], *parts: Any
    ) -> Number:
        """Return a number of `optimizer` with its value after the step."""
        self._asked.append(optimizer)
        return self._recorder.number_of(now, *parts, alive=f"{what}; {ALIVE}")

    def _last_rates(self, scheduler: LRScheduler) -> Callable[[], list[Number]]:
        count = len(scheduler.optimizer.param_groups)

        def get_last_lr() -> list[Number]:
            return [
                self.number(
                    innermost(scheduler.optimizer),
                    "computes with get_last_lr()",
                    _last_rate,
                    scheduler,
                    place,
                )
                for place in range(count)
            ]

        return get_last_lr

    def _scheduler_step(self, name: str, scheduler: LRScheduler) -> Callable[..., None]:
        def step(*args: Any, **kwargs: Any) -> None:
            if innermost(scheduler.optimizer) in self._asked:
                raise _refused(
                    f"calls {name}.step() behind a read of a rate that it changes", "read the rate last"
                )
            self._changed.append(innermost(scheduler.optimizer))
            self.calls.append((scheduler, "step", args, kwargs))

        return step


@contextmanager
def _unwritten(numbers: Sequence[GroupNumber]) -> Generator[None]:
    """Refuse a number that is written to a param group itself, such as one that a wrapper has too: no step would do it."""
    marks = [number.copied() for number in numbers]
    for number, mark in zip(numbers, marks, strict=True):
        number.group[number.key] = mark
    written: list[GroupNumber] = []
    try:
        yield
    finally:
        for number, mark in zip(numbers, marks, strict=True):
            if number.group[number.key] is not mark:
                written.append(number)
            number.group[number.key] = number.value
    if written:
        name, key = written[0].optimizer, written[0].key
        raise trace_error(
            f"the loop body sets {key!r} in a param group of {name}, which it does not take from {name}.param_groups;"
            f" write for group in {name}.param_groups: group[{key!r}] = …",
            source.here(),
        )


def _params_of(optimizer: Any) -> list[torch.Tensor]:
    return [param for group in optimizer.param_groups for param in group["params"]]


def _last_rate(scheduler: LRScheduler, place: int) -> Any:
    return scheduler.get_last_lr()[place]


def _limit(name: str, driver: Any, verbs: Mapping[str, Any]) -> None:
    """Limit an object to these attributes, by a class of its own."""
    kind: type[Any] = driver.__class__

    def looked_up(self: Any, attribute: str) -> Any:
        if attribute in verbs:
            return verbs[attribute]
        if attribute.startswith("__"):
            return object.__getattribute__(self, attribute)
        calls = ", ".join(f"{name}.{verb}()" for verb in verbs if callable(verbs[verb]))
        raise _refused(f"uses {name}.{attribute}", f"a loop body calls {calls}")

    def assigned(self: Any, attribute: str, value: object) -> None:
        raise _refused(f"sets {name}.{attribute}", "do so between two calls of the step")

    # by `type` itself: a metaclass, as abc's, runs code of its own, which the trace would take for the user's
    own = {"__getattribute__": looked_up, "__setattr__": assigned, "__module__": __name__}
    limited = type.__new__(type(kind), kind.__name__, (kind,), own)
    object.__setattr__(driver, "__class__", limited)


def _without_hooks(wrapper: Any) -> None:
    """Let a wrapper's step be its own code alone, by a class of its own. Torch's global hooks around a step are ours."""
    kind: type[Any] = wrapper.__class__
    step: Any = kind.step
    lookup: Any = kind.__getattribute__
    if any(wrapper.__dict__.get(hooks) for hooks in STEP_HOOKS):
        return
    while getattr(step, "__code__", None) is HOOKED:  # a decorator of the user's stays, as torch.no_grad()
        step = step.__wrapped__
    plain = partial(step, wrapper)

    def looked_up(self: Any, attribute: str) -> Any:
        return plain if attribute == "step" else lookup(self, attribute)

    own = {"__getattribute__": looked_up, "__module__": __name__}
    object.__setattr__(wrapper, "__class__", type.__new__(type(kind), kind.__name__, (kind,), own))


def _unknown(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    del args, kwargs
    raise _refused(
        f"steps an optimizer, {type(optimizer).__name__}, that its closure, its globals and its object do not lead to",
        "keep it in a variable that the body reads",
    )


def _refused(what: str, instead: str) -> Exception:
    location = source.here()
    return trace_error(f"the loop body {what}{quoted(location)}; {instead}", location)
