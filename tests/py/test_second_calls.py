"""State of Python in whatever place, which makes a second call of a step another one; and what a trace may not leave there."""

from __future__ import annotations

import ctypes
import functools
import queue
import threading
from array import array
from collections import Counter, OrderedDict, UserDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from aicf_mlir import compile_train_step
from aicf_mlir.errors import TraceError

Loss = Callable[[Any, Any], torch.Tensor]

ANOTHER = r"at a call|its next call|second call"


def square(model: Any, batch: Any) -> torch.Tensor:
    return F.mse_loss(model(batch["x"]), batch["t"])


def batch() -> dict[str, torch.Tensor]:
    return {"x": torch.ones(4, 4), "t": torch.zeros(4, 3)}


def compiled(model: nn.Module, loss: Loss) -> Any:
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    return compile_train_step(model, sgd, loss_fn=loss, example=batch(), device="cpu")


class Growing(nn.Module):
    """A layer whose output grows by what a method of its own counts."""

    def __init__(self, tick: Callable[[Any], float]) -> None:
        super().__init__()
        self.layer, self.counts, self.inner = nn.Linear(4, 3), [0], Ticks()
        self.of_instance = tick

    def tick(self) -> float:
        return self.of_instance(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.tick()


class Ticks:
    """An object of the user's that counts."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self._number = 0

    def push(self) -> int:
        self.made.append(1)
        return len(self.made)

    @property
    def number(self) -> int:
        self._number += 1
        return self._number


def of_a_method(module: Growing) -> float:
    module.counts[0] += 1
    return float(module.counts[0])


def of_an_object(module: Growing) -> float:
    return float(module.inner.push())


def of_a_property(module: Growing) -> float:
    return float(module.inner.number)


def of_the_class(module: Growing) -> float:
    kind: Any = type(module)
    kind.total = getattr(kind, "total", 0) + 1
    return float(kind.total)


@pytest.mark.parametrize("tick", [of_a_method, of_an_object, of_a_property, of_the_class])
def test_what_methods_of_a_module_count_is_refused(tick: Callable[[Any], float]) -> None:
    with pytest.raises(TraceError, match=ANOTHER):
        compiled(Growing(tick), square)


def on_itself() -> Loss:
    def loss(model: Any, batch: Any) -> torch.Tensor:
        own.calls += 1
        return square(model, batch) * own.calls

    own: Any = loss
    own.calls = 0
    return loss


def on_a_wrapper() -> Loss:
    def counted(function: Loss) -> Loss:
        @functools.wraps(function)
        def outer(*operands: Any) -> torch.Tensor:
            own.calls += 1
            return function(*operands) * own.calls

        own: Any = outer
        own.calls = 0
        return outer

    return counted(square)


def in_a(container: Any, key: Any, take: Callable[[Any], float] = float) -> Callable[[], Loss]:
    """Counting in one place of a container."""

    def make() -> Loss:
        def loss(model: Any, batch: Any) -> torch.Tensor:
            container[key] += 1
            return square(model, batch) * take(container[key])

        return loss

    return make


def in_a_tuple() -> Loss:
    holder: Any = Ticks()
    holder.made = (0, 1)

    def loss(model: Any, batch: Any) -> torch.Tensor:
        holder.made = (holder.made[0] + 1, 1)
        return square(model, batch) * holder.made[0]

    return loss


def in_a_queue() -> Loss:
    weights: queue.Queue[float] = queue.Queue()
    for weight in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0):
        weights.put(weight)
    return lambda model, batch: square(model, batch) * weights.get(block=False)


def of_a_thread() -> Loss:
    own = threading.local()

    def loss(model: Any, batch: Any) -> torch.Tensor:
        own.calls = getattr(own, "calls", 0) + 1
        return square(model, batch) * own.calls

    return loss


def which_layer() -> Loss:
    turns: queue.Queue[int] = queue.Queue()
    for number in range(20):
        turns.put(number % 2)
    return lambda model, batch: F.mse_loss(model[turns.get(block=False)](batch["x"]), batch["t"])


COUNTING: dict[str, Callable[[], Loss]] = {
    "an attribute of the loss": on_itself,
    "an attribute of its wrapper": on_a_wrapper,
    "a Counter": in_a(Counter({"n": 0}), "n"),
    "a UserDict": in_a(UserDict({"n": 0}), "n"),
    "an array": in_a(array("d", [0.0]), 0),
    "bytes": in_a(bytearray(1), 0),
    "a tuple": in_a_tuple,
    "a queue": in_a_queue,
    "a thread's own": of_a_thread,
    "which layer": which_layer,
}


@pytest.mark.parametrize("place", COUNTING)
def test_a_step_that_counts_is_refused_wherever_it_does(place: str) -> None:
    """Or else it would train by the first call for ever."""
    model = nn.ModuleList([nn.Linear(4, 3), nn.Linear(4, 3)]) if place == "which layer" else nn.Linear(4, 3)
    with pytest.raises(TraceError, match=ANOTHER):
        compiled(model, COUNTING[place]())


def test_a_counter_is_put_back_as_it_was() -> None:
    counts = Counter({"a": 2})

    def loss(model: Any, batch: Any) -> torch.Tensor:
        counts["calls"] += 1
        return square(model, batch) * counts["calls"]

    with pytest.raises(TraceError, match="counts"):
        compiled(nn.Linear(4, 3), loss)
    assert counts == {"a": 2}


def test_the_line_is_named_where_the_place_is_not_known() -> None:
    """What C keeps has no place: it is seen by what a second call computes."""
    own = ctypes.c_int(0)

    def loss(model: Any, batch: Any) -> torch.Tensor:
        own.value += 1
        return square(model, batch) * own.value

    with pytest.raises(
        TraceError, match=r"second call: first mul \(`return square\(model, batch\) \* own\.value`\)"
    ):
        compiled(nn.Linear(4, 3), loss)


def test_what_the_first_call_alone_does_is_a_difference() -> None:
    """It is the one that would be traced."""
    made = ctypes.c_int(0)

    def loss(model: Any, batch: Any) -> torch.Tensor:
        is_first = made.value == 0
        made.value = 1
        return square(model, batch) * (2.0 if is_first else 1.0)

    with pytest.raises(TraceError, match="second call"):
        compiled(nn.Linear(4, 3), loss)


def test_whether_there_are_gradients_is_a_difference() -> None:
    """No operand tells: the second call computes the same, and trains nothing by it."""
    counts = ctypes.c_int(0)

    def loss(model: Any, batch: Any) -> torch.Tensor:
        counts.value += 1
        with torch.set_grad_enabled(counts.value == 1):
            half = square(model, batch)
        return half + square(model, batch)

    with pytest.raises(TraceError, match="second call"):
        compiled(nn.Linear(4, 3), loss)


def test_what_torch_is_asked_once_is_no_difference() -> None:
    """An LSTM on a GPU asks this, and fake tensors remember the answer: the second call does not get to the mode."""

    asked: Any = vars(torch)["_use_cudnn_rnn_flatten_weight"]

    def loss(model: Any, batch: Any) -> torch.Tensor:
        asked()
        return square(model, batch)

    FakeTensorMode.cache_clear()
    compiled(nn.Linear(4, 3), loss)


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
    kept = keeping[name]

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(kept(4) @ x)

    model = Masked()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    if sizes:
        step = compile_train_step(model, sgd, B=4, D=4, device="cpu")
    else:
        step = compile_train_step(model, sgd, loss_fn=square, example=batch(), device="cpu")
    assert not isinstance(kept(4), FakeTensor)
    with torch.no_grad():
        expected = square(model, batch())
    torch.testing.assert_close(step.train_step(batch()), expected)


def test_a_table_in_a_global_dictionary_stays_out_of_it_where_sizes_are_given() -> None:
    kept: OrderedDict[str, torch.Tensor] = OrderedDict()

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if "scale" not in kept:
                kept["scale"] = torch.arange(4.0)
            return self.layer(x * kept["scale"])

    model = Scaled()
    compile_train_step(model, torch.optim.SGD(model.parameters(), lr=0.1), B=4, D=4, device="cpu")
    assert not kept
