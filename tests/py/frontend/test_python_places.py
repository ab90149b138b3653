"""What a trace leaves of Python is found by what the bytecode reads and writes, and no method of the user's objects runs."""

from __future__ import annotations

import contextvars
import functools
import itertools
import queue
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from aicf_mlir.frontend.export import _attributes_restored  # pyright: ignore[reportPrivateUsage]
from aicf_mlir.frontend.places import PlaceNames, TracedPlaces, VisitedPlace
from aicf_mlir.frontend.recorder import Recorder


class Net(torch.nn.Module):
    def __init__(self, body: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.body = body
        self.n = 0
        self.numbers = [1.0, 2.0]
        self.table: torch.Tensor | None = None
        self.log: list[int] = []
        self.kind: str | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self, x)


class Step(torch.nn.Module):
    def __init__(self, model: torch.nn.Module, places: TracedPlaces) -> None:
        super().__init__()
        self.model, self.places = model, places

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with Recorder(), self.places.recording():
            return self.model(x)


def traced(model: torch.nn.Module) -> Sequence[VisitedPlace]:
    step = Step(model, TracedPlaces())
    with _attributes_restored(step), step.places.taken():
        torch.export.export(step, (torch.ones(2, 4),), strict=False)
    return step.places.all


def carried(model: torch.nn.Module) -> list[str]:
    """What the next call would compute with, by name."""
    places = traced(model)
    names = PlaceNames(places, {id(model): "model"})
    return [names.name(p) for p in places if p.kind == "opaque" or (p.is_left and p.read_first)]


COUNTS = {"n": 0}
total = 0
QUEUE: queue.Queue[float] = queue.Queue()
OPAQUE_QUEUE: queue.SimpleQueue[float] = queue.SimpleQueue()
TICKS = itertools.count()
VARIABLE: contextvars.ContextVar[float] = contextvars.ContextVar("VARIABLE", default=1.0)


def plain(m: Any, x: torch.Tensor) -> torch.Tensor:
    return m.linear(x).sum()


def counter(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.n += 1
    return (m.linear(x) * m.n).sum()


def taken(m: Any, x: torch.Tensor) -> torch.Tensor:
    return (m.linear(x) * m.numbers.pop(0)).sum()


def filled(m: Any, x: torch.Tensor) -> torch.Tensor:
    if m.table is None:
        m.table = torch.arange(4.0)
    return (m.linear(x) * m.table).sum()


def logged(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.log.append(1)
    return m.linear(x).sum()


def kept_aside(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.last = m.linear(x)
    return m.last.sum()


def of_globals(m: Any, x: torch.Tensor) -> torch.Tensor:
    COUNTS["n"] += 1
    return (m.linear(x) * COUNTS["n"]).sum()


def of_a_name(m: Any, x: torch.Tensor) -> torch.Tensor:
    global total
    total += 1
    return (m.linear(x) * total).sum()


def of_a_function(m: Any, x: torch.Tensor) -> torch.Tensor:
    of_a_function.calls = getattr(of_a_function, "calls", 0) + 1  # type: ignore[attr-defined]
    return (m.linear(x) * of_a_function.calls).sum()  # type: ignore[attr-defined]


def drawn(m: Any, x: torch.Tensor) -> torch.Tensor:
    return (m.linear(x) * random.random()).sum()


def from_a_queue(m: Any, x: torch.Tensor) -> torch.Tensor:
    return (m.linear(x) * QUEUE.get()).sum()


def from_an_opaque_queue(m: Any, x: torch.Tensor) -> torch.Tensor:
    return (m.linear(x) * OPAQUE_QUEUE.get()).sum()


def ticked(m: Any, x: torch.Tensor) -> torch.Tensor:
    return (m.linear(x) * next(TICKS)).sum()


def put_back(m: Any, x: torch.Tensor) -> torch.Tensor:
    token = VARIABLE.set(3.0)
    result = m.linear(x).sum() * VARIABLE.get()
    VARIABLE.reset(token)
    return result


@functools.lru_cache
def ramp(n: int) -> float:
    return n * 0.5


def cached(m: Any, x: torch.Tensor) -> torch.Tensor:
    return (m.linear(x) * ramp(4)).sum()


def own_objects(m: Any, x: torch.Tensor) -> torch.Tensor:
    found = {"a": [1.0]}
    found["a"].append(found["a"].pop() + 1.0)
    found["b"] = list(found["a"])
    return (m.linear(x) * found["b"][0]).sum()


CARRIED = {
    plain: [],
    counter: ["model.n"],
    taken: ["model.numbers"],
    filled: ["model.table"],
    logged: [],
    kept_aside: [],
    of_globals: ["COUNTS['n']"],
    of_a_name: ["total"],
    drawn: ["Random"],
    from_a_queue: ["QUEUE.queue"],
    from_an_opaque_queue: ["OPAQUE_QUEUE"],
    ticked: ["TICKS"],
    put_back: [],
    cached: [],
    own_objects: [],
}
"""What the next call of a step would compute with."""


@pytest.fixture(autouse=True)
def _queues() -> None:
    for each in (QUEUE, OPAQUE_QUEUE):
        each.put(1.0)
        each.put(2.0)


@pytest.mark.parametrize("body", CARRIED, ids=lambda body: body.__name__)
def test_what_a_call_leaves_for_the_next_is_named(body: Any) -> None:
    if body is cached:
        ramp(4)  # what it keeps of other numbers is nobody's affair
    assert carried(Net(body)) == CARRIED[body]


def test_an_attribute_of_a_function_is_a_place() -> None:
    assert carried(Net(of_a_function)) == ["model.body.calls"]


def test_what_is_written_and_never_read_is_left_and_not_carried() -> None:
    model = Net(logged)
    places = traced(model)
    names = PlaceNames(places, {id(model): "model"})
    assert [names.name(place) for place in places if place.is_left] == ["model.log"]


def by_layer(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.calls[m.linear]["n"] += 1
    return m.linear(x).sum()


def test_a_key_that_is_an_object_is_named_as_an_object() -> None:
    model: Any = Net(by_layer)
    model.calls = {model.linear: {"n": 0}}
    assert carried(model) == ["model.calls[model.linear]['n']"]


def labelled(m: Any, x: torch.Tensor) -> torch.Tensor:
    if m.kind is None:
        m.kind = "sum"
    return m.linear(x).sum()


def test_a_value_that_is_set_once_is_carried_by_the_first_trace_alone() -> None:
    model = Net(labelled)
    assert carried(model) == ["model.kind"]
    assert model.kind is None
    model.kind = "sum"
    assert not carried(model)


CALLED: list[str] = []
"""Errors inside the recorder may be swallowed; a call is written down besides."""


def refusing(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        CALLED.append(name)
        raise AssertionError(f"{name} of the user's was called")

    return refuse


DUNDERS = (
    "eq ne lt bool len iter next contains getitem setitem call repr str format dir sizeof reduce reduce_ex copy deepcopy getattr"
    " setattr delattr hash index float array"
)
METHODS = (
    *(f"__{name}__" for name in DUNDERS.split()),
    *("get", "items", "keys", "values", "pop", "append", "update", "copy"),
)


@pytest.mark.parametrize("base", [object, dict, list, set, tuple, str, float])
def test_no_method_of_the_users_objects_is_called(base: type) -> None:
    kind = type("Refusing", (base,), {**{name: refusing(name) for name in METHODS}, "scale": 2.0})
    held = kind()

    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        return (m.linear(x) * m.held.scale * SHARED.scale).sum()

    SHARED = held
    model = Net(body)
    model.held = held
    CALLED.clear()
    places = traced(model)
    assert not [p for p in places if p.kind == "opaque" or (p.is_left and p.read_first)]
    assert not CALLED
    read = {(place.kind, place.key) for place in places if place.owner is kind}
    assert ("class", "scale") in read


def test_the_users_trace_function_sees_its_own_and_stays() -> None:
    seen: list[str] = []

    def tracer(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code is counter.__code__:
            seen.append(event)
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        names = carried(Net(counter))
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
    assert names == ["model.n"]
    assert seen == ["call", "line", "line", "return"]


def test_a_trace_that_fails_leaves_no_places_for_the_next() -> None:
    def fails(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.n += 1
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        traced(Net(fails))
    assert not carried(Net(plain))


def test_places_are_few_and_values_behind_them_are_not_looked_at() -> None:
    model = Net(lambda m, x: m.linear(x).sum() * m.far["scale"])
    model.far = {"scale": 2.0, **{i: object() for i in range(300_000)}}
    places = traced(model)
    assert [place.key for place in places if place.owner is model.far] == ["scale"]
    assert len(places) < 400
