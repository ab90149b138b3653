"""Objects that a step reads: arrays of every layout, classes with data in them, and those that do not let one look."""

from __future__ import annotations

import contextvars
import enum
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from aicf_mlir import AicfError, compile_train_step
from aicf_mlir.errors import GuardError, TraceError


class Pair:
    """A step whose loss is multiplied by a number of the user's, beside the same of torch."""

    def __init__(self, factor: Callable[[], Any]):
        torch.manual_seed(0)
        self.nets = nn.Linear(4, 4), nn.Linear(4, 4)
        self.nets[1].load_state_dict(self.nets[0].state_dict())
        self.batch = {"x": torch.ones(2, 4), "t": torch.zeros(2, 4)}
        self.sgds = [torch.optim.SGD(net.parameters(), lr=0.1) for net in self.nets]

        def loss_fn(model: Any, batch: Any) -> torch.Tensor:
            return (model(batch["x"]) - batch["t"]).square().mean() * float(factor())

        self.loss_fn = loss_fn
        self.step = compile_train_step(
            self.nets[0], self.sgds[0], loss_fn=loss_fn, example=self.batch, device="cpu", name="looking"
        )

    def train(self, replayed: bool = False) -> None:
        """One step of each, which must agree."""
        loss = self.step.replay() if replayed else self.step.train_step(self.batch)
        self.sgds[1].zero_grad()
        wanted = self.loss_fn(self.nets[1], self.batch)
        wanted.backward()
        self.sgds[1].step()
        torch.testing.assert_close(loss, wanted.detach())
        torch.testing.assert_close(self.nets[0].weight, self.nets[1].weight)

    def sees(self, change: Callable[[], object], error: type[AicfError] = GuardError) -> None:
        """A change that matters is an error in both ways to run, and the step goes on with it when it is compiled again."""
        self.train()
        self.step.capture()
        self.train(replayed=True)
        change()
        for call in (lambda: self.step.train_step(self.batch), lambda: self.step.replay()):
            with pytest.raises(error):
                call()
        self.step.recompile()
        self.train()


def written(array: Any, value: Any) -> None:
    array[(0,) * array.ndim] = value


ARRAYS: dict[str, Callable[[], Any]] = {
    "dense": lambda: np.arange(1.0, 13.0),
    "transposed": lambda: np.arange(1.0, 13.0).reshape(3, 4).T,
    "backwards": lambda: np.arange(1.0, 13.0)[::-1],
    "every second": lambda: np.arange(1.0, 13.0)[::2],
    "as Fortran": lambda: np.asfortranarray(np.arange(1.0, 13.0).reshape(3, 4)),
    "of objects": lambda: np.array([1.0, 2.0], dtype=object),
    "of truth": lambda: np.ones(6, dtype=bool)[::2],
    "of half": lambda: np.ones(6, dtype=np.float16)[::3],
    "0-d": lambda: np.array(2.0),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_of_any_layout_is_compared(name: str) -> None:
    array = ARRAYS[name]()
    Pair(lambda: array.ravel()[0]).sees(lambda: written(array, 0.5 if array.dtype != bool else False))


def test_arrays_that_show_no_memory_are_compared() -> None:
    days = np.array(["2020-01-01"], dtype="M8[D]")
    Pair(lambda: days[0].astype(int)).sees(lambda: written(days, np.datetime64("2021-01-01")))
    rows = np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])
    Pair(lambda: rows["b"][0]).sees(lambda: rows["b"].__setitem__(0, 3.0))


class Named(NamedTuple):
    factor: float

    def scaled(self) -> float:
        return self.factor * 2.0


class Level(enum.Enum):
    LOW = 1.0

    def scaled(self) -> float:
        return self.value * 2.0


class Number(float):
    unit = 1.0


class Members(list[float]):
    unit = 1.0


class Local(threading.local):
    factor = 1.0


NAMED, NUMBER, MEMBERS, LOCAL = Named(1.0), Number(2.0), Members([1.0]), Local()
VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("VARIABLE")
VARIABLE.set({"factor": 1.0})


def in_variable() -> float:
    return VARIABLE.get()["factor"]


SEEN: dict[str, tuple[Callable[[], Any], Any, str, Any]] = {
    "method of a named tuple": (lambda: NAMED.scaled(), Named, "scaled", lambda self: self.factor * 3.0),
    "method of an enumeration": (lambda: Level.LOW.scaled(), Level, "scaled", lambda self: self.value * 3.0),
    "attribute of a number's class": (lambda: NUMBER * NUMBER.unit, Number, "unit", 3.0),
    "attribute of a list's class": (lambda: MEMBERS[0] * MEMBERS.unit, Members, "unit", 3.0),
    "operator of a number's class": (lambda: NUMBER * 2.0, Number, "__mul__", lambda self, other: 5.0),
    "what a thread has": (lambda: LOCAL.factor, LOCAL, "factor", 3.0),
}


@pytest.mark.parametrize("name", SEEN)
def test_classes_with_data_in_them_are_watched(name: str) -> None:
    factor, owner, attribute, value = SEEN[name]
    had, before = attribute in vars(owner), getattr(owner, attribute)
    try:
        Pair(factor).sees(lambda: setattr(owner, attribute, value))
    finally:
        setattr(owner, attribute, before) if had else delattr(owner, attribute)


def test_a_container_in_a_context_is_watched() -> None:
    try:
        Pair(in_variable).sees(lambda: VARIABLE.get().update(factor=3.0))
        Pair(in_variable).sees(lambda: VARIABLE.set({"factor": 4.0}))
    finally:
        VARIABLE.set({"factor": 1.0})


def test_a_count_in_a_context_is_refused() -> None:
    def counted() -> float:
        VARIABLE.set(VARIABLE.get() + 1.0)
        return VARIABLE.get()

    VARIABLE.set(1.0)
    try:
        with pytest.raises(TraceError, match="VARIABLE"):
            Pair(counted)
        assert VARIABLE.get() == 1.0
    finally:
        VARIABLE.set({"factor": 1.0})


def test_a_list_is_compared_as_deep_as_it_was_read() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    Pair(lambda: len(deep)).sees(lambda: deep.append(1))


def test_a_long_text_is_compared_whole() -> None:
    texts = {"mode": "a" * 80 + "b"}
    pair = Pair(lambda: {"b": 1.0, "c": 1.0, "d": 3.0}[texts["mode"][-1]])
    pair.train()
    texts["mode"] = "a" * 80 + "c"
    pair.train()
    texts["mode"] = "a" * 80 + "d"
    with pytest.raises(GuardError):
        pair.step.train_step(pair.batch)


def test_a_set_is_compared_with_what_was_last_accepted() -> None:
    names, recent = {"a"}, deque(["a"])
    pair = Pair(lambda: (3.0 if "b" in names else 1.0) * (3.0 if "b" in recent else 1.0))
    pair.train()
    names.add("c")
    recent.append("c")
    pair.train()
    names.add("b")
    with pytest.raises(GuardError, match="names"):
        pair.step.train_step(pair.batch)
    names.discard("b")
    pair.train()
    recent.append("b")
    with pytest.raises(GuardError, match="recent"):
        pair.step.train_step(pair.batch)
