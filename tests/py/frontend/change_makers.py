"""Ways to change what is around a step for the time of a block; `global_changes` says what each should do."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from global_worlds import GAIN, Net, World
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from aicf_mlir import AicfError, GuardError

Change = Callable[[World], AbstractContextManager[Any]]
Outcome = Literal["followed", "guarded", "refused"]


@dataclass(frozen=True)
class Case:
    change: Change
    outcome: Outcome
    message: str = ""
    error: type[AicfError] = GuardError
    shared: bool = True
    """Whether one change reaches both worlds; else it is made in each."""
    undone: bool = True
    """Whether the change ends where its context does."""
    momentum: bool = False
    eager_fails: bool = False
    """Whether torch's own step raises then."""
    in_loop: bool = True


@contextlib.contextmanager
def put(owner: Any, name: str, value: Any) -> Generator[None]:
    """An attribute, or its absence, put back afterwards."""
    held = vars(owner).get(name, contextlib)
    setattr(owner, name, value)
    try:
        yield
    finally:
        delattr(owner, name) if held is contextlib else setattr(owner, name, held)


def setting(owner: Any, name: str, value: Any) -> Change:
    return lambda _: put(owner, name, value)


def entered(make: Callable[[], AbstractContextManager[Any]]) -> Change:
    return lambda _: make()


@contextlib.contextmanager
def with_setter(setter: Callable[[Any], object], value: Any, before: Any) -> Generator[None]:
    setter(value)
    try:
        yield
    finally:
        setter(before)


def calls(setter: Callable[[Any], object], value: Any, before: Any) -> Change:
    return lambda _: with_setter(setter, value, before)


def of_world(path: str, value: Callable[[World], Any]) -> Change:
    """An attribute behind a path from the world."""

    def change(world: World) -> AbstractContextManager[None]:
        owner: Any = world
        *parts, last = path.split(".")
        for part in parts:
            owner = getattr(owner, part)
        return exchanged(owner, last, value(world))

    return change


@contextlib.contextmanager
def exchanged(owner: Any, name: str, value: Any) -> Generator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def environment(key: str, value: str) -> Generator[None]:
    os.environ[key] = value
    try:
        yield
    finally:
        del os.environ[key]


@contextlib.contextmanager
def context(value: float) -> Generator[None]:
    token = GAIN.set(value)
    try:
        yield
    finally:
        GAIN.reset(token)


@contextlib.contextmanager
def hooked(register: Callable[..., Any], hook: Any) -> Generator[None]:
    handle = register(hook)
    try:
        yield
    finally:
        handle.remove()


def doubled(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
    return output * 2.0


def nothing(*_: Any) -> None:
    pass


class Doubled(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2.0 if func is torch.tanh else result


class Seen(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def packed(t: torch.Tensor) -> torch.Tensor:
    return t * 1.0


def relu_of(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    return torch.sigmoid(x)


def wrapped_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
    return CALL(self, *args, **kwargs) * 0.5


CALL = vars(nn.Module)["_call_impl"]
TANH, MUL, ADAM_STEP = torch.tanh, torch.Tensor.mul, torch.optim.Adam.step


def half_step(self: Any, closure: Any = None) -> Any:
    for group in self.param_groups:
        for p in group["params"]:
            p.data.add_(p.grad, alpha=-0.001)


def own_step(world: World) -> AbstractContextManager[None]:
    return put(world.optimizer, "step", half_step.__get__(world.optimizer))


def own_zero_grad(world: World) -> AbstractContextManager[None]:
    return put(world.optimizer, "zero_grad", nothing)


@contextlib.contextmanager
def scheduled(world: World) -> Generator[None]:
    torch.optim.lr_scheduler.ExponentialLR(world.optimizer, 0.5)
    yield


def swapped_dict(path: str, key: str, value: Any) -> Change:
    def new(world: World) -> dict[str, Any]:
        owner: Any = world
        for part in path.split("."):
            owner = getattr(owner, part)
        return {**vars(owner), key: value}

    return of_world(f"{path}.__dict__", new)


@contextlib.contextmanager
def shared_buffer(world: World) -> Generator[None]:
    one, other = (
        world.optimizer.state[p] for p in (world.model.first.weight, world.model.block.inner.weight)
    )
    before, one["momentum_buffer"] = one["momentum_buffer"], other["momentum_buffer"]
    try:
        yield
    finally:
        one["momentum_buffer"] = before


@contextlib.contextmanager
def without_entry(world: World, key: str) -> Generator[None]:
    group = world.optimizer.param_groups[0]
    before = group.pop(key)
    try:
        yield
    finally:
        group[key] = before


@contextlib.contextmanager
def same_again(world: World) -> Generator[None]:
    """Everything is set to what it is."""
    torch.tanh, nn.ReLU.forward, Net.forward = torch.tanh, nn.ReLU.forward, Net.forward  # type: ignore[method-assign]
    Net.__call__ = Net.__call__  # type: ignore[method-assign]
    torch.set_default_dtype(torch.get_default_dtype())
    F.relu.__code__ = F.relu.__code__
    yield
    del Net.__call__


def code_of(function: Any, other: Any) -> Change:
    return setting_parts(function, "__code__", other.__code__)


def setting_parts(function: Any, part: str, value: Any) -> Change:
    return lambda _: exchanged(function, part, value)
