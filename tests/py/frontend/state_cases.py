"""State of Python that a step changes at a call: what its next call computes with, and what nobody does."""

from __future__ import annotations

import functools
import io
import queue
import threading
from array import array
from collections import Counter, OrderedDict, UserDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

Loss = Callable[[Any, Any], torch.Tensor]
Take = Callable[[Any], float]
"""From what a step holds, the factor of its loss; a call of it changes what is held."""

HELD = r"the step (changes (what )?held|reads 'held', a queue)"


def square(model: Any, batch: Any) -> torch.Tensor:
    return F.mse_loss(model(batch["x"]), batch["t"])


def linear() -> nn.Module:
    return nn.Linear(4, 3)


@dataclass(frozen=True)
class Case:
    """A step that is refused."""

    loss: Callable[[], tuple[Loss, Any]] = lambda: (square, None)
    """Makes the loss, and what it holds."""
    model: Callable[[], nn.Module] = linear
    message: str = HELD
    matters: bool = True
    """Whether a later call of torch's gives something else than the first."""


def times(make: Callable[[], Any], take: Take, message: str = HELD, matters: bool = True) -> Case:
    """A loss that is multiplied by what `take` gives of what it holds."""

    def loss() -> tuple[Loss, Any]:
        held = make()
        return lambda model, batch: square(model, batch) * take(held), held

    return Case(loss, message=message, matters=matters)


def of_model(make: Callable[[], nn.Module], message: str) -> Case:
    return Case(model=make, message=message)


def bump(held: Any, key: Any = 0, by: float = 1) -> float:
    held[key] += by
    return float(held[key])


def late(count: float) -> float:
    return 1.0 if count < 100 else 2.0


def filled(held: Any, *values: float) -> Any:
    for value in values:
        held.put(value)
    return held


def after(held: Any, *changes: object) -> Any:
    """What is held, after changes of it."""
    return held


class Layer(nn.Module):
    """A layer whose output is multiplied by what `take` gives of the module, which has these attributes."""

    def __init__(self, take: Callable[[Any], Any], **attributes: Any) -> None:
        super().__init__()
        self.layer, self.take = nn.Linear(4, 3), take
        vars(self).update(attributes)

    def factor(self) -> Any:
        return self.take(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.factor()


class Remembering(nn.Module):
    """A recurrent layer that goes on from where the call before has ended."""

    def __init__(self, begins: str) -> None:
        super().__init__()
        self.layer, self.cell = nn.Linear(4, 3), nn.LSTM(4, 3, batch_first=True)
        self.begins = begins
        self.hidden: Any = torch.zeros(4, 3) if begins == "zeros" else None
        self.before: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.begins == "pair":
            y, (h, c) = self.cell(x[:, None], self.hidden)
            self.hidden = h.detach(), c.detach()
            return y[:, 0]
        y = self.layer(x)
        if self.begins == "list":
            result = sum(self.before, y)
            self.before.append(y.detach())
            return result
        result = y if self.hidden is None else y + self.hidden
        self.hidden = y.detach()
        return result


class Ticks:
    """An object of the user's that counts."""

    total = 0

    def __init__(self) -> None:
        self.made: list[int] = []
        self.beta, self._number = 0.5, 0

    def push(self) -> float:
        self.made.append(1)
        return float(len(self.made))

    @property
    def number(self) -> float:
        self._number += 1
        return float(self._number)


def of_the_class(held: Any) -> float:
    kind: Any = type(held)
    kind.total = kind.total + 1
    return float(kind.total)


calls = 0


def in_a_global() -> tuple[Loss, Any]:
    def loss(model: Any, batch: Any) -> torch.Tensor:
        global calls
        calls += 1
        return square(model, batch) * calls

    return loss, None


def in_a_closure() -> tuple[Loss, Any]:
    count = 0

    def loss(model: Any, batch: Any) -> torch.Tensor:
        nonlocal count
        count += 1
        return square(model, batch) * count

    return loss, None


def on_itself() -> tuple[Loss, Any]:
    def loss(model: Any, batch: Any) -> torch.Tensor:
        own.calls += 1
        return square(model, batch) * own.calls

    own: Any = loss
    own.calls = 0
    return loss, None


def on_a_wrapper() -> tuple[Loss, Any]:
    def counted(function: Loss) -> Loss:
        @functools.wraps(function)
        def outer(*operands: Any) -> torch.Tensor:
            own.calls += 1
            return function(*operands) * own.calls

        own: Any = outer
        own.calls = 0
        return outer

    return counted(square), None


def kept_tensor(held: Any) -> Loss:
    def loss(model: Any, batch: Any) -> torch.Tensor:
        y = model(batch["x"])
        total = y + held["y"] if "y" in held else y
        held["y"] = y.detach()
        return F.mse_loss(total, batch["t"])

    return loss


def in_turns() -> tuple[Loss, Any]:
    turns = filled(queue.Queue(), *(number % 2 for number in range(20)))
    return lambda model, batch: F.mse_loss(model[turns.get(block=False)](batch["x"]), batch["t"]), None


def changed(**new: Callable[[Any], Any]) -> Take:
    """What is held gets new attributes of the old ones; the factor is late to see them."""

    def take(held: Any) -> float:
        for name, value in new.items():
            setattr(held, name, value(held))
        return late(held.record[0] if isinstance(held.record, tuple) else of_record(held.record))

    return take


def of_record(record: Any) -> float:
    return float(record["calls"] if isinstance(record, dict) else record.calls)


@dataclass(frozen=True)
class Record:
    calls: int = 0
    scale: float = 1.0


class Named(NamedTuple):
    calls: int = 0
    scale: float = 1.0


def counted(record: Any) -> Any:
    """A record with one call more."""
    if isinstance(record, Record):
        return replace(record, calls=record.calls + 1)
    return (
        {**record, "calls": record["calls"] + 1} if isinstance(record, dict) else (record[0] + 1, record[1])
    )


def rest(held: Any) -> float:
    first, held.rest = held.rest[0], held.rest[1:]
    return float(first == "a") if isinstance(first, str) else first


def shifted(held: Any) -> float:
    first = float(held[0])
    held[:-1] = held[1:].copy()
    return first


FOUR = (1.0, 1.0, 1.0, 2.0)


def a_record(kind: Any) -> Callable[[], Any]:
    return lambda: SimpleNamespace(record=kind)


NEW = changed(record=lambda held: counted(held.record))

COUNTS: dict[str, Case] = {
    "a list": times(lambda: [0], bump, r"changes held\[0\], from 0, at a call"),
    "a dictionary": times(lambda: {"n": 0}, lambda h: bump(h, "n"), r"changes held\['n'\]"),
    "a Counter": times(lambda: Counter({"n": 0}), lambda h: bump(h, "n")),
    "a UserDict": times(lambda: UserDict({"n": 0}), lambda h: bump(h, "n")),
    "an array": times(lambda: array("d", [0.0]), bump),
    "numpy's": times(lambda: np.zeros(1), bump, r"changes what held holds"),
    "bytes": times(lambda: bytearray(1), bump),
    "a tuple": times(
        a_record((0, 1)), lambda h: after(setattr(h, "record", (h.record[0] + 1, 1)), 0) or h.record[0]
    ),
    "how long a list is": times(
        lambda: [0], lambda h: after(len(h), h.append(1)), r"changes what held holds"
    ),
    "a global": Case(in_a_global, message=r"changes calls, from 0"),
    "a closure": Case(in_a_closure, message=r"changes count, from 0"),
    "an attribute of the loss": Case(on_itself, message="at a call"),
    "an attribute of its wrapper": Case(on_a_wrapper, message="at a call"),
    "an object": times(
        Ticks,
        lambda h: after(setattr(h, "beta", h.beta * 0.9)) or h.beta,
        r"changes held\.beta, from 0\.5, at a call",
    ),
    "a method": times(Ticks, lambda h: h.push(), r"changes what held\.made"),
    "a property": times(Ticks, lambda h: h.number, r"changes held\._number"),
    "a class": times(Ticks, of_the_class, r"changes Ticks\.total"),
    "a thread's own": times(threading.local, lambda h: after(setattr(h, "n", getattr(h, "n", 0) + 1)) or h.n),
    "a model": of_model(
        lambda: Layer(lambda m: bump(vars(m), "calls"), calls=0),
        r"changes model\.calls, from 0, .*register_buffer",
    ),
    "a layer": of_model(
        lambda: nn.Sequential(nn.Identity(), Layer(lambda m: bump(vars(m), "calls"), calls=0)),
        r"changes model\.1\.calls",
    ),
    "a model's list": of_model(
        lambda: Layer(lambda m: bump(m.counts), counts=[0]), r"changes model\.counts\[0\]"
    ),
    "a first call": of_model(
        lambda: Layer(
            lambda m: after(2.0 if m.is_first else 1.0, setattr(m, "is_first", False)), is_first=True
        ),
        r"changes model\.is_first, from True, at a call, and computes with it",
    ),
    "after some calls": of_model(
        lambda: Layer(lambda m: 0.5 if bump(vars(m), "calls") > 500 else 1.0, calls=0),
        r"changes model\.calls, from 0, .*computes with it",
    ),
    "along a tuple": times(lambda: [0], lambda h: (1.0, 1.0, 0.5)[int(bump(h)) - 1], r"changes held\[0\]"),
    "which layer": Case(in_turns, lambda: nn.ModuleList([linear(), linear()]), "at a call"),
}

TAKES: dict[str, Case] = {
    "the first of a list": times(lambda: [*FOUR], lambda h: h.pop(0)),
    "the last of equal ones": times(lambda: [1.0] * 5, lambda h: h.pop()),
    "the first if there is one": times(lambda: [1.0] * 5 + [3.0], lambda h: h.pop(0) if h else 1.0),
    "text": times(lambda: ["a"] * 3 + ["b"], lambda h: float(h.pop(0) == "a")),
    "functions": times(lambda: [float] * 3 + [lambda _: 2.0], lambda h: h.pop(0)(1.0)),
    "a list of a list": times(lambda: [[1.0], [1.0], [2.0]], lambda h: h.pop(0)[0]),
    "a part of a tuple": times(lambda: [(1.0, "x")] * 3 + [(2.0, "y")], lambda h: h.pop(0)[0]),
    "a dictionary's last": times(lambda: {"a": 2.0, "b": 1.0, "c": 1.0}, lambda h: h.popitem()[1]),
    "any of a set": times(lambda: {1, 2, 3}, lambda h: float(h.pop() > 0)),
    "an array's": times(lambda: array("d", FOUR), lambda h: h.pop(0)),
    "bytes": times(lambda: bytearray([1, 1, 1, 255]), lambda h: h.pop(0)),
    "a rotated deque": times(
        lambda: deque(FOUR), lambda h: after(h, h.rotate(-1))[0], r"changes what held holds"
    ),
    "a list in turns": times(lambda: [*FOUR], lambda h: after(h, h.append(h.pop(0)))[-1]),
    "an ordered dictionary in turns": times(
        lambda: OrderedDict(a=1.0, b=2.0),
        lambda h: after(h, h.move_to_end(next(iter(h.keys()))))["a"] * next(iter(h.values())),
    ),
    "a shifted array": times(lambda: np.array(FOUR), shifted),
    "a queue": times(lambda: filled(queue.Queue(), *FOUR), lambda h: h.get()),
    "a stack": times(lambda: filled(queue.LifoQueue(), *reversed(FOUR)), lambda h: h.get()),
    "a queue of C": times(lambda: filled(queue.SimpleQueue(), *FOUR), lambda h: h.get()),
    "the rest of a list": times(lambda: SimpleNamespace(rest=[*FOUR]), rest),
    "the rest of a tuple": times(lambda: SimpleNamespace(rest=FOUR), rest),
    "the rest of a text": times(lambda: SimpleNamespace(rest="aaab"), rest),
    "a model's schedule": of_model(
        lambda: Layer(rest, rest=FOUR), r"the step changes what model\.rest holds"
    ),
    "a frozen record": times(a_record(Record()), NEW),
    "a named tuple": times(a_record(Named()), NEW),
    "a new dictionary": times(a_record({"calls": 0, "scale": 1.0}), NEW),
    "a new tuple": times(a_record((0, 1.0)), NEW),
    "a model's tuple": of_model(
        lambda: Layer(NEW, record=(0, 1.0)), r"the step changes what model\.record holds"
    ),
    "a late count in an array": times(lambda: array("l", [0]), lambda h: late(bump(h))),
    "a late count in numpy's": times(lambda: np.zeros(1, int), lambda h: late(bump(h))),
    "a late count in a Counter": times(lambda: Counter({"n": 0}), lambda h: late(bump(h, "n"))),
    "the last few": times(
        lambda: [1.0, 2.0, 3.0], lambda h: after(1.0, h.append(4.0), len(h) > 3 and h.pop(0)), matters=False
    ),
    "a file's next line": times(
        lambda: io.StringIO("1\n1\n1\n2\n"), lambda h: float(h.readline()), "reads 'held', an iterator"
    ),
    "a queue that is filled": times(queue.SimpleQueue, lambda h: after(1.0, h.put(1)), matters=False),
}
"""What a call takes, however alike the first ones are; the last two are only seen to be read."""

KEPT: dict[str, Case] = {
    "from nothing": of_model(lambda: Remembering("nothing"), r"keeps model\.hidden for its next call"),
    "from zeros": of_model(lambda: Remembering("zeros"), r"keeps model\.hidden .*register_buffer"),
    "a pair": of_model(lambda: Remembering("pair"), r"keeps model\.hidden"),
    "in a list": of_model(
        lambda: Remembering("list"),
        r"puts something into model\.before, and its next call computes with that",
    ),
    "in a dictionary": Case(
        lambda: (kept_tensor(held := {}), held),
        message=r"puts something into held\['y'\], .*return it as an output",
    ),
}
"""Tensors that a call leaves for the next."""

REFUSED = {
    f"{kind}: {name}": case
    for kind, cases in (("counts in", COUNTS), ("takes", TAKES), ("keeps", KEPT))
    for name, case in cases.items()
}
