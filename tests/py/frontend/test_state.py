"""State of Python, in whatever place, that makes a later call of a step another one; and what a trace may not leave there."""

from __future__ import annotations

import copy
import ctypes
import functools
import io
import logging
import queue
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import state_cases
import torch
from state_cases import REFUSED, Layer, Loss, Take, Ticks, after, bump, linear, square, times
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from aicf_mlir import compile_step, compile_train_step
from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import trace


def batch(device: str = "cpu") -> dict[str, torch.Tensor]:
    return {"x": torch.ones(4, 4, device=device), "t": torch.zeros(4, 3, device=device)}


def compiled(model: nn.Module, loss: Loss = square, device: str = "cpu") -> Any:
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    return compile_train_step(model, sgd, loss_fn=loss, example=batch(device), device=device)


def contents(held: Any) -> object:
    """What is held, as far as it can be written; a queue of C cannot."""
    if isinstance(held, (SimpleNamespace, Ticks)):
        return repr(vars(held)), Ticks.total
    return len(repr(held)) if type(held).__name__ in ("SimpleQueue", "_local") else repr(held)


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_later_call_computes_with_is_refused(name: str) -> None:
    case = REFUSED[name]
    (loss, held), model = case.loss(), case.model()
    before, attributes = contents(held), repr(dict(vars(model)))
    with pytest.raises(TraceError, match=case.message):
        trace(model, loss, batch())
    assert contents(held) == before and repr(dict(vars(model))) == attributes
    assert (state_cases.calls, Ticks.total) == (0, 0)


@pytest.mark.parametrize("name", [name for name, case in REFUSED.items() if case.matters])
def test_torch_computes_with_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this a step that is compiled would be right."""
    monkeypatch.setattr(state_cases, "calls", 0)
    monkeypatch.setattr(Ticks, "total", 0)
    case = REFUSED[name]
    (loss, _), model = case.loss(), case.model()
    first = loss(model, batch())
    for _ in range(600):
        try:
            later = loss(model, batch())
        except (IndexError, KeyError):
            return  # nothing is left
        if not torch.equal(first, later):
            return
    pytest.fail("every call is like the first")


class Registry:
    """As einx keeps its own: made anew at each call, and alike."""

    def __init__(self) -> None:
        self.entered: list[Any] = []
        self.names = {"torch": [torch.Tensor]}

    def anew(self) -> Registry:
        other = Registry()
        other.entered, other.names = [*self.entered], {name: [*kinds] for name, kinds in self.names.items()}
        return other


def registered(held: Any) -> float:
    held.registry = held.registry.anew()
    held.registry.entered.append("call")
    held.registry = held.registry.anew()
    held.registry.entered.pop()
    return float(len(held.registry.names))


def written(held: logging.StreamHandler[Any]) -> float:
    held.stream.write("a")
    print("b", file=held.stream)
    held.handle(logging.makeLogRecord({"msg": "c"}))
    held.flush()
    return 1.0


def searched(held: Any) -> float:
    """As opt_einsum looks for a path: what a recursive function in a closure writes to is held by nothing but itself."""
    best: dict[str, float] = {"cost": 9.0}

    def search(depth: int) -> None:
        best["cost"] = min(best["cost"], depth)
        if depth:
            search(depth - 1)

    search(int(held[0]))
    return 1.0 + best["cost"]


ALLOWED: dict[str, tuple[Callable[[], Any], Take]] = {
    "a full deque": (lambda: deque([1.0, 1.0], maxlen=2), lambda h: after(1.0, h.append(5.0))),
    "those of this call": (lambda: ["stale", "old"], lambda h: after(1.0, h.clear(), h.append("now"))),
    "the newest first": (lambda: [1.0], lambda h: after(1.0, h.insert(0, 4.0))),
    "an entry beside one that is read": (
        lambda: {"unused": 1, "scale": 2.0},
        lambda h: after(h["scale"], h.pop("unused", 0)),
    ),
    "a queue": (queue.Queue, lambda h: after(1.0, h.put(1))),
    "a file": (lambda: logging.StreamHandler(io.StringIO()), written),
    "a registry that is made anew": (lambda: SimpleNamespace(registry=Registry()), registered),
    "a search by a recursive function": (lambda: [3.0], searched),
}
"""What a call changes and no call computes with."""


@pytest.mark.parametrize("name", ALLOWED)
def test_what_no_step_computes_with_may_be_changed(name: str) -> None:
    loss, _ = times(*ALLOWED[name]).loss()
    step = compiled(linear(), loss)
    assert step.train_step(batch()) > step.train_step(batch())


def test_a_step_that_is_refused_has_taken_nothing() -> None:
    held = [1.0, 2.0]

    def loss(model: Any, batch: Any) -> torch.Tensor:
        return square(model, batch) * held.pop(0) * float(torch.ones(1).requires_grad_())

    with pytest.raises(TraceError):
        compiled(linear(), loss)
    assert held == [1.0, 2.0]


C_STATE = r"second call: first mul \(`return square\(model, batch\) \* float\(own\.value\)`\)"


def counted_in_c(own: Any) -> Loss:
    def loss(model: Any, batch: Any) -> torch.Tensor:
        own.value += 1
        return square(model, batch) * float(own.value)

    return loss


def first_in_c(own: Any) -> Loss:
    def loss(model: Any, batch: Any) -> torch.Tensor:
        is_first, own.value = own.value == 0, 1
        return square(model, batch) * (2.0 if is_first else 1.0)

    return loss


def gradients_in_c(own: Any) -> Loss:
    """No operand tells: the second call computes the same, and trains nothing by it."""

    def loss(model: Any, batch: Any) -> torch.Tensor:
        own.value += 1
        with torch.set_grad_enabled(own.value == 1):
            half = square(model, batch)
        return half + square(model, batch)

    return loss


@pytest.mark.parametrize(
    "make, message", [(counted_in_c, C_STATE), (first_in_c, "second"), (gradients_in_c, "second")]
)
def test_what_c_keeps_is_seen_by_what_a_second_call_computes(
    make: Callable[[Any], Loss], message: str
) -> None:
    with pytest.raises(TraceError, match=message):
        compiled(linear(), make(ctypes.c_int(0)))


def test_what_torch_is_asked_once_is_no_difference() -> None:
    """An LSTM on a GPU asks this, and fake tensors remember the answer: the second call does not get to the mode."""
    asked: Any = vars(torch)["_use_cudnn_rnn_flatten_weight"]

    def loss(model: Any, batch: Any) -> torch.Tensor:
        asked()
        return square(model, batch)

    FakeTensorMode.cache_clear()
    compiled(linear(), loss)


def test_a_name_that_has_no_value_yet_is_no_counter() -> None:
    def loss(model: Any, batch: Any) -> torch.Tensor:
        return later(model, batch) if batch["x"].dim() > 2 else square(model, batch)

    trace(linear(), loss, batch())

    def later(model: Any, batch: Any) -> torch.Tensor:
        return square(model, batch)

    trace(linear(), loss, batch())


def test_a_counter_behind_a_loop_body_that_computes_with_it_is_refused() -> None:
    model = Layer(lambda m: bump(vars(m), "calls"), calls=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def body(batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss = square(model, batch)
        loss.backward()
        optimizer.step()
        return loss

    with pytest.raises(TraceError, match=r"changes model\.calls, from 0, at a call, and computes with it"):
        compile_step(body, example=batch(), device="cpu")
    assert model.calls == 0


def logged(module: Any) -> float:
    module.calls += 1
    if module.calls % 100 == 0:
        print("a hundred calls")
    return 1.0


def warned(module: Any) -> Any:
    """Prints something once, and builds a table once."""
    if not module.warned:
        print("once")
        module.warned = True
    if not module.built:
        module.table, module.built = torch.linspace(0.5, 1.0, 3, device=module.layer.weight.device), True
    return module.table


def cached(module: Any) -> Any:
    """Keeps a table for the length that it saw last, as rotary embeddings do, and what it made last."""
    if module.table is None or module.length != 4:
        module.length = 4
        module.table = torch.linspace(0.5, 1.0, 4, device=module.layer.weight.device)[:, None]
    module.last = y = module.layer.weight.sum() * module.table
    return y


def turned(module: Any) -> Any:
    """Makes a table of a buffer once, and one for each length."""
    places = torch.arange(4, device=module.rates.device)[:, None]
    if module.angles is None:
        module.angles = (places * module.rates).cos()
    if 4 not in module.tables:
        module.tables[4] = places / 4
    return module.angles + module.tables[4]


def gathered(module: Any) -> Any:
    """Leaves a loss in a list, as mixtures of experts do, and features in a dictionary."""
    module.losses.clear()
    module.features["y"] = y = module.layer.weight.sum()
    module.losses.append(y.square().mean())
    return y + module.losses[0]


def of_rates() -> nn.Module:
    module = Layer(turned, angles=None, tables={})
    module.register_buffer("rates", torch.linspace(0.1, 1.0, 3))
    return module


HARMLESS: dict[str, Callable[[], nn.Module]] = {
    "logs": lambda: Layer(logged, calls=0),
    "warns": lambda: Layer(warned, warned=False, built=False, table=None),
    "caches": lambda: Layer(cached, length=0, table=None, last=None),
    "turns": of_rates,
    "gathers": lambda: Layer(gathered, losses=[], features={}),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_makes_no_difference_trains_as_in_torch(name: str, device: str) -> None:
    torch.manual_seed(0)
    model = HARMLESS[name]().to(device)
    reference = copy.deepcopy(model)
    attributes = {key: value for key, value in vars(model).items() if not key.startswith("_")}
    eager, data = torch.optim.SGD(reference.parameters(), lr=0.1), batch(device)
    step = compiled(model, device=device)
    for _ in range(3):
        eager.zero_grad()
        expected = square(reference, data)
        expected.backward()
        eager.step()
        torch.testing.assert_close(step.train_step(data), expected.detach())
    assert {key: value for key, value in vars(model).items() if not key.startswith("_")} == attributes


def doubled(module: nn.Module, given: Any, result: Any) -> Any:
    return result * 2


def hooked(module: Any) -> float:
    """Keeps what it was called with in dictionaries that are ordered, and hooks itself at its first call."""
    module.shapes["rows"] = 4
    if not module.is_hooked:
        module.is_hooked = True
        module.inner.register_forward_hook(doubled)
    return module.inner(torch.ones(4, 4)).sum()


def test_ordered_dictionaries_are_put_back_whole() -> None:
    model: Any = Layer(hooked, shapes=OrderedDict(kept=1), is_hooked=False)
    model.inner = nn.Linear(4, 4)
    reference = copy.deepcopy(model)
    step = compiled(model)
    hooks = vars(model.inner)["_forward_hooks"]
    assert [*model.shapes.items()] == [*reversed(model.shapes.items())] == [("kept", 1)]
    assert [*hooks.items()] == [*reversed(hooks.items())] == [] and not model.is_hooked
    torch.testing.assert_close(step.train_step(batch()), square(reference, batch()).detach())


@functools.lru_cache
def recipe(pattern: str) -> list[int]:
    """As einops makes it: a list that is filled bit by bit, and kept."""
    made: list[int] = []
    for letter in pattern:
        made += ["ab".index(letter)]
    return made


def test_what_a_cached_function_has_made_is_no_state() -> None:
    model = linear()

    def loss(model: Any, batch: Any) -> torch.Tensor:
        return model(batch["x"]).permute(*recipe("ba")).square().mean()

    expected = loss(model, batch()).detach()
    torch.testing.assert_close(compiled(model, loss).train_step(batch()), expected)
    assert recipe("ba") == [1, 0]


@functools.lru_cache
def table(n: int) -> torch.Tensor:
    return torch.tril(torch.ones(n, n))


@functools.lru_cache(maxsize=1)
def one_table(n: int) -> torch.Tensor:
    return torch.tril(torch.ones(n, n))


class Tables:
    """Of the user's, with a method that keeps what it gave."""

    @functools.cache  # noqa: B019 - what a user may write
    def table(self, n: int) -> torch.Tensor:
        return torch.tril(torch.ones(n, n))


tables = Tables()


@pytest.fixture
def keeping() -> Iterator[dict[str, Callable[[int], torch.Tensor]]]:
    """Functions that keep their first result, empty; one of them is full."""
    one_table(3)
    yield {"lru_cache": table, "of one": one_table, "cache": tables.table}
    for each in (table, one_table, Tables.table):
        each.cache_clear()


@pytest.mark.parametrize("sizes", [False, True])
@pytest.mark.parametrize("name", ["lru_cache", "of one", "cache"])
def test_no_tensor_of_a_trace_stays_in_what_functions_keep(
    name: str, sizes: bool, keeping: dict[str, Callable[[int], torch.Tensor]]
) -> None:
    kept, kept_here = keeping[name], OrderedDict[str, torch.Tensor]()

    def masked(module: Any) -> torch.Tensor:
        if "scale" not in kept_here:
            kept_here["scale"] = torch.arange(4.0)
        return (kept(4) @ kept_here["scale"])[:, None]

    model = Layer(masked)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    step = compile_train_step(model, sgd, B=4, D=4, device="cpu") if sizes else compiled(model)
    assert not isinstance(kept(4), FakeTensor) and not kept_here
    with torch.no_grad():
        expected = square(model, batch())
    kept_here.clear()
    torch.testing.assert_close(step.train_step(batch()), expected)
