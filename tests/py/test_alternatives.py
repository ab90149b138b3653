"""What a step takes out of containers, and numbers in records: what it reads and changes is refused, whatever it computes."""

from __future__ import annotations

import copy
import functools
import queue
from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from aicf_mlir import compile_train_step
from aicf_mlir.errors import TraceError

Take = Callable[[Any], float]
"""From what a step holds, the factor of its loss; a call of it changes what is held."""


def batch() -> dict[str, torch.Tensor]:
    return {"x": torch.ones(4, 4), "t": torch.zeros(4, 3)}


def compiled(held: Any, take: Take) -> Any:
    """A step whose loss is multiplied by what `take` gives of `held`."""
    model = nn.Linear(4, 3)

    def loss(model: Any, batch: Any) -> torch.Tensor:
        return F.mse_loss(model(batch["x"]), batch["t"]) * take(held)

    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    return compile_train_step(model, sgd, loss_fn=loss, example=batch(), device="cpu")


def filled(held: Any, *values: float) -> Any:
    for value in values:
        held.put(value)
    return held


def rotated(held: Any) -> float:
    held.rotate(-1)
    return held[0]


def turned(held: Any) -> float:
    held.append(first := held.pop(0))
    return first


def shifted(held: Any) -> float:
    first = float(held[0])
    held[:-1] = held[1:].copy()
    return first


def sliced(held: Any) -> float:
    first, held.rest = held.rest[0], held.rest[1:]
    return float(first == "a") if isinstance(first, str) else first


def late(count: float) -> float:
    return 1.0 if count < 100 else 2.0


@dataclass(frozen=True)
class Record:
    calls: int = 0
    scale: float = 1.0


class Named(NamedTuple):
    calls: int = 0
    scale: float = 1.0


def counted_in_record(held: Any) -> float:
    held.record = replace(held.record, calls=held.record.calls + 1)
    return late(held.record.calls)


def counted_in_named(held: Any) -> float:
    held.record = held.record._replace(calls=held.record.calls + 1)
    return late(held.record.calls)


def counted_in_dict(held: Any) -> float:
    held.record = {**held.record, "calls": held.record["calls"] + 1}
    return late(held.record["calls"])


def counted_in_tuple(held: Any) -> float:
    held.record = (held.record[0] + 1, held.record[1])
    return late(held.record[0])


def counted_at(key: Any) -> Take:
    def take(held: Any) -> float:
        held[key] += 1
        return late(held[key])

    return take


TAKEN: dict[str, tuple[Callable[[], Any], Take]] = {
    "the first of a list": (lambda: [1.0, 1.0, 1.0, 2.0], lambda held: held.pop(0)),
    "the last of equal ones": (lambda: [1.0] * 5, lambda held: held.pop()),
    "the first if there is one": (lambda: [1.0] * 5 + [3.0], lambda held: held.pop(0) if held else 1.0),
    "text": (lambda: ["a"] * 3 + ["b"], lambda held: float(held.pop(0) == "a")),
    "functions": (lambda: [float] * 3 + [abs], lambda held: held.pop(0)(1.0)),
    "a list of a list": (lambda: [[1.0], [1.0], [2.0]], lambda held: held.pop(0)[0]),
    "a part of a tuple": (lambda: [(1.0, "x")] * 3 + [(2.0, "y")], lambda held: held.pop(0)[0]),
    "a dictionary's last": (lambda: {"a": 2.0, "b": 1.0, "c": 1.0}, lambda held: held.popitem()[1]),
    "any of a set": (lambda: {1, 2, 3}, lambda held: float(held.pop() > 0)),
    "an array's": (lambda: array("d", [1.0, 1.0, 1.0, 2.0]), lambda held: held.pop(0)),
    "bytes": (lambda: bytearray([1, 1, 1, 255]), lambda held: held.pop(0)),
    "a rotated deque": (lambda: deque([1.0, 1.0, 1.0, 2.0]), rotated),
    "a list in turns": (lambda: [1.0, 1.0, 1.0, 2.0], turned),
    "a shifted array": (lambda: np.array([1.0, 1.0, 1.0, 2.0]), shifted),
    "a queue": (lambda: filled(queue.Queue(), 1.0, 1.0, 1.0, 2.0), lambda held: held.get()),
    "a stack": (lambda: filled(queue.LifoQueue(), 2.0, 1.0, 1.0, 1.0), lambda held: held.get()),
    "a queue of C": (lambda: filled(queue.SimpleQueue(), 1.0, 1.0, 1.0, 2.0), lambda held: held.get()),
    "the rest of a list": (lambda: SimpleNamespace(rest=[1.0, 1.0, 1.0, 2.0]), sliced),
    "the rest of a tuple": (lambda: SimpleNamespace(rest=(1.0, 1.0, 1.0, 2.0)), sliced),
    "the rest of a text": (lambda: SimpleNamespace(rest="aaab"), sliced),
    "a frozen record": (lambda: SimpleNamespace(record=Record()), counted_in_record),
    "a named tuple": (lambda: SimpleNamespace(record=Named()), counted_in_named),
    "a new dictionary": (lambda: SimpleNamespace(record={"calls": 0, "scale": 1.0}), counted_in_dict),
    "a new tuple": (lambda: SimpleNamespace(record=(0, 1.0)), counted_in_tuple),
    "a late count in an array": (lambda: array("l", [0]), counted_at(0)),
    "a late count in numpy's": (lambda: np.zeros(1, int), counted_at(0)),
    "a late count in a Counter": (lambda: Counter({"n": 0}), counted_at("n")),
}


def bounded(held: Any) -> float:
    held.append(4.0)
    if len(held) > 3:
        held.pop(0)
    return 1.0


def appended(held: Any) -> float:
    held.append(5.0)
    return 1.0


def only_the_last(held: Any) -> float:
    held.clear()
    held.append("now")
    return 1.0


def at_the_front(held: Any) -> float:
    held.insert(0, 4.0)
    return 1.0


def without(held: Any) -> float:
    held.pop("unused", None)
    return held["scale"]


def put(held: Any) -> float:
    held.put(1)
    return 1.0


def scale_of_record(held: Any) -> float:
    counted_in_record(held)
    return held.record.scale


def scale_of_named(held: Any) -> float:
    counted_in_named(held)
    return held.record.scale


def scale_of_dict(held: Any) -> float:
    counted_in_dict(held)
    return held.record["scale"]


READ: dict[str, tuple[Callable[[], Any], Take]] = {
    "the last few": (lambda: [1.0, 2.0, 3.0], bounded),
    "a queue of C": (queue.SimpleQueue, put),
    "a record's count beside its scale": (lambda: SimpleNamespace(record=Record()), scale_of_record),
    "a tuple's count beside its scale": (lambda: SimpleNamespace(record=Named()), scale_of_named),
    "a count beside a scale": (lambda: SimpleNamespace(record={"calls": 0, "scale": 1.0}), scale_of_dict),
}
"""What is read and changed, though nothing computes with it, or cannot be put back."""

LOGS: dict[str, tuple[Callable[[], Any], Take]] = {
    "a full deque": (lambda: deque([1.0, 1.0], maxlen=2), appended),
    "those of this call": (lambda: ["stale", "old"], only_the_last),
    "the newest first": (lambda: [1.0], at_the_front),
    "an entry beside one that is read": (lambda: {"unused": 1, "scale": 2.0}, without),
    "a queue": (queue.Queue, put),
}


def shown(held: Any) -> str:
    return (
        ""
        if isinstance(held, queue.SimpleQueue)
        else repr(vars(held) if isinstance(held, SimpleNamespace) else held)
    )


@pytest.mark.parametrize("place", [*TAKEN, *READ])
def test_what_a_step_takes_or_counts_is_refused_however_alike_the_first_ones_are(place: str) -> None:
    make, take = (TAKEN | READ)[place]
    held = make()
    contents = shown(held)
    with pytest.raises(TraceError, match=r"the step (changes (what )?held|reads 'held', a queue)"):
        compiled(held, take)
    assert shown(held) == contents


@pytest.mark.parametrize("place", LOGS)
def test_what_no_step_computes_with_may_be_taken_and_counted(place: str) -> None:
    make, take = LOGS[place]
    step = compiled(make(), take)
    assert step.train_step(batch()) > step.train_step(batch())


def test_a_step_that_is_refused_has_taken_nothing() -> None:
    held = [1.0, 2.0]

    def take(held: Any) -> float:
        first = held.pop(0)
        return first * float(torch.ones(1).requires_grad_())

    with pytest.raises(TraceError):
        compiled(held, take)
    assert held == [1.0, 2.0]


class Scheduled(nn.Module):
    """A layer with a schedule in its own attributes, of which each call takes the first number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.schedule, self.seen = nn.Linear(4, 3), [1.0, 1.0, 1.0, 2.0], (0,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, self.schedule = self.schedule[0], self.schedule[1:]
        return self.layer(x) * first


class Late(Scheduled):
    """One whose schedule comes to what it has counted after a hundred calls."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = (self.seen[0] + 1,)
        return self.layer(x) * late(self.seen[0])


@pytest.mark.parametrize(("kind", "name"), [(Scheduled, "schedule"), (Late, "seen")])
def test_a_module_is_no_other_place(kind: type[Scheduled], name: str) -> None:
    model = kind()
    before = dict(vars(model))
    with pytest.raises(TraceError, match=rf"the step changes what model\.{name} holds"):
        compile_train_step(model, torch.optim.SGD(model.parameters(), lr=0.1), B=4, D=4, device="cpu")
    assert vars(model) == before


def doubled(module: nn.Module, given: Any, result: Any) -> Any:
    return result * 2


class Ordered(nn.Module):
    """Keeps what it was called with in dictionaries that are ordered, and hooks itself at its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.shapes: OrderedDict[str, int] = OrderedDict(kept=1)
        self.is_hooked = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.shapes[f"rows {x.shape[0]}"] = x.shape[0]
        if not self.is_hooked:
            self.is_hooked = True
            self.layer.register_forward_hook(doubled)
        return self.layer(x)


def test_ordered_dictionaries_are_put_back_whole() -> None:
    torch.manual_seed(0)
    model = Ordered()
    reference, given = copy.deepcopy(model), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = compile_train_step(
        model, optimizer, loss_fn=lambda m, b: m(b["x"]).square().mean(), example=given, device="cpu"
    )
    hooks = model.layer._forward_hooks  # pyright: ignore[reportPrivateUsage]
    assert [*model.shapes.items()] == [*reversed(model.shapes.items())] == [("kept", 1)]
    assert [*hooks.items()] == [*reversed(hooks.items())] == [] and not model.is_hooked
    torch.testing.assert_close(step.train_step(given), reference(given["x"]).square().mean().detach())
    model(given["x"])
    assert [*model.shapes] == ["kept", "rows 4"] and len([*hooks.items()]) == 1


@functools.lru_cache
def recipe(pattern: str) -> list[int]:
    """As einops makes it: a list that is filled bit by bit, and kept."""
    made: list[int] = []
    for letter in pattern:
        made += ["ab".index(letter)]
    return made


def test_what_a_cached_function_has_made_is_no_state() -> None:
    given, model = batch(), nn.Linear(4, 3)

    def loss(model: Any, batch: Any) -> torch.Tensor:
        return model(batch["x"]).permute(*recipe("ba")).square().mean()

    expected = loss(model, given).detach()
    step = compile_train_step(
        model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn=loss, example=given, device="cpu"
    )
    torch.testing.assert_close(step.train_step(given), expected)
    assert recipe("ba") == [1, 0]
