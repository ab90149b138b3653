"""Counters and what calls leave for the next, which a compiled step would repeat, are refused by name, and are as before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from aicf_mlir import compile_step, compile_train_step
from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import trace

Loss = Callable[[Any, Any], torch.Tensor]
counted, numbers, calls = [0], {"calls": 0}, 0


class Settings:
    """Of the user's."""

    beta = 0.5

    def __init__(self) -> None:
        self.beta = 0.5


settings = Settings()


def square(model: Any, batch: Any) -> torch.Tensor:
    return F.mse_loss(model(batch["x"]), batch["t"])


def batch() -> dict[str, torch.Tensor]:
    return {"x": torch.ones(2, 4), "t": torch.zeros(2, 3)}


def counts_in_a_list(model: Any, batch: Any) -> torch.Tensor:
    counted[0] += 1
    return square(model, batch) * counted[0]


def counts_in_a_dictionary(model: Any, batch: Any) -> torch.Tensor:
    numbers["calls"] += 1
    return square(model, batch) * numbers["calls"]


def counts_in_a_global(model: Any, batch: Any) -> torch.Tensor:
    global calls
    calls += 1
    return square(model, batch) * calls


def walks_along_a_list(model: Any, batch: Any) -> torch.Tensor:
    weights = (1.0, 1.0, 0.5)
    counted[0] += 1
    return square(model, batch) * weights[counted[0] - 1]


def anneals(model: Any, batch: Any) -> torch.Tensor:
    settings.beta *= 0.9
    return square(model, batch) * settings.beta


def counts_in_a_closure() -> Loss:
    count = 0

    def loss(model: Any, batch: Any) -> torch.Tensor:
        nonlocal count
        count += 1
        return square(model, batch) * count

    return loss


class Counting(nn.Module):
    """A layer whose output grows from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = nn.Linear(4, 3), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.layer(x) * self.calls


class Logging(nn.Module):
    """A layer that counts its calls, and does nothing else with the number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = nn.Linear(4, 3), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls % 100 == 0:
            print("a hundred calls")
        return self.layer(x)


class Warming(Counting):
    """A layer that begins to scale its output after some calls."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.layer(x) * (0.5 if self.calls > 500 else 1.0)


class Remembering(nn.Module):
    """A recurrent layer that goes on from where the call before has ended."""

    def __init__(self, begins: str) -> None:
        super().__init__()
        self.layer, self.cell = nn.Linear(4, 3), nn.LSTM(4, 3, batch_first=True)
        self.begins = begins
        self.hidden: Any = torch.zeros(2, 3) if begins == "zeros" else None
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


class Gathering(nn.Module):
    """A layer whose forward leaves a loss in a list, as mixtures of experts do, and features in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.losses: list[torch.Tensor] = []
        self.features: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.losses.clear()
        self.features["y"] = y = self.layer(x)
        self.losses.append(y.square().mean())
        return y + self.losses[0]


class First(nn.Module):
    """A layer that does something else at its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.is_first = nn.Linear(4, 3), True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        if self.is_first:
            self.is_first = False
            return 2 * y
        return y


class Warned(nn.Module):
    """A layer that prints something once, and builds a table once."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.warned, self.built = nn.Linear(4, 3), False, False
        self.table: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.warned:
            print("once")
            self.warned = True
        if not self.built:
            self.table, self.built = torch.linspace(0.5, 1.0, 3, device=x.device), True
        return self.layer(x) * self.table


class Cached(nn.Module):
    """A layer that keeps a table for the length that it saw last, as rotary embeddings do, and its last output."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.length = nn.Linear(4, 3), 0
        self.table: torch.Tensor | None = None
        self.last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None or len(x) != self.length:
            self.length = len(x)
            self.table = torch.linspace(0.5, 1.0, self.length, device=x.device)[:, None]
        self.last = y = self.layer(x) * self.table
        return y


class Turned(nn.Module):
    """A layer that makes a table of a buffer once, as rotary embeddings do, and one for each length."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("rates", torch.linspace(0.1, 1.0, 3))
        self.angles: torch.Tensor | None = None
        self.tables: dict[int, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(len(x), device=x.device)[:, None]
        if self.angles is None:
            self.angles = (places * self.get_buffer("rates")).cos()
        if len(x) not in self.tables:
            self.tables[len(x)] = places / len(x)
        return self.layer(x) * self.angles + self.tables[len(x)]


def linear() -> nn.Module:
    return nn.Linear(4, 3)


def inside() -> nn.Module:
    return nn.Sequential(nn.Identity(), Counting())


COUNTED: dict[str, tuple[Callable[[], nn.Module], Loss, str]] = {
    "in a list": (linear, counts_in_a_list, r"changes counted\[0\], from 0, at a call"),
    "in a dictionary": (linear, counts_in_a_dictionary, r"changes numbers\['calls'\]"),
    "in a global": (linear, counts_in_a_global, r"changes calls, from 0"),
    "in a closure": (linear, counts_in_a_closure(), r"changes count, from 0"),
    "in an object": (linear, anneals, r"changes settings\.beta, from 0\.5, at a call"),
    "in a model": (Counting, square, r"changes model\.calls, from 0, .*register_buffer"),
    "a first call": (First, square, r"changes model\.is_first, from True, at a call, and computes with it"),
    "in a layer": (inside, square, r"changes model\.1\.calls"),
}
LATER = {
    "along a list": (linear, walks_along_a_list, r"changes counted\[0\]"),
    "after some calls": (Warming, square, r"changes model\.calls, from 0, .*computes with it"),
}


kept: dict[str, torch.Tensor] = {}
hidden: torch.Tensor | None = None


def keeps_in_a_dictionary(model: Any, batch: Any) -> torch.Tensor:
    y = model(batch["x"])
    total = y + kept["y"] if "y" in kept else y
    kept["y"] = y.detach()
    return F.mse_loss(total, batch["t"])


def keeps_in_a_global(model: Any, batch: Any) -> torch.Tensor:
    global hidden
    y = model(batch["x"])
    total = y if hidden is None else y + hidden
    hidden = y.detach()
    return F.mse_loss(total, batch["t"])


turned, steps = deque([1.0, 2.0, 3.0]), np.zeros(1)


def turns(model: Any, batch: Any) -> torch.Tensor:
    turned.rotate(1)
    return square(model, batch) * turned[0]


def counts_in_an_array(model: Any, batch: Any) -> torch.Tensor:
    steps[0] += 1
    return square(model, batch) * float(steps[0])


def grows(model: Any, batch: Any) -> torch.Tensor:
    counted.append(1)
    return square(model, batch) * len(counted)


KEPT: dict[str, tuple[Callable[[], nn.Module], Loss, str]] = {
    "from nothing": (lambda: Remembering("nothing"), square, r"keeps model\.hidden for its next call"),
    "from zeros": (lambda: Remembering("zeros"), square, r"keeps model\.hidden .*register_buffer"),
    "a pair": (lambda: Remembering("pair"), square, r"keeps model\.hidden"),
    "in a list": (
        lambda: Remembering("list"),
        square,
        r"puts something into model\.before, and its next call computes with that",
    ),
    "in a dictionary": (
        linear,
        keeps_in_a_dictionary,
        r"puts something into kept\['y'\], .*return it as an output",
    ),
    "in a queue": (linear, turns, r"changes what turned holds"),
    "in an array": (linear, counts_in_an_array, r"changes what steps holds"),
    "in how long a list is": (linear, grows, r"changes what counted holds"),
    "in a global": (linear, keeps_in_a_global, r"puts something into hidden"),
}


@pytest.mark.parametrize("name", [*COUNTED, *LATER])
def test_a_counter_is_refused(name: str) -> None:
    make, loss, pattern = (COUNTED | LATER)[name]
    with pytest.raises(TraceError, match=pattern) as caught:
        trace(make(), loss, batch())
    assert str(caught.value).startswith(f"{__file__}:")
    assert (counted, numbers, calls, settings.beta) == ([0], {"calls": 0}, 0, 0.5)


@pytest.mark.parametrize("name", KEPT)
def test_a_hidden_state_is_refused(name: str) -> None:
    make, loss, pattern = KEPT[name]
    model = make()
    with pytest.raises(TraceError, match=pattern) as caught:
        trace(model, loss, batch())
    assert str(caught.value).startswith(f"{__file__}:")
    assert (list(turned), steps.tolist(), counted) == ([1.0, 2.0, 3.0], [0.0], [0])
    assert (kept, hidden, getattr(model, "before", [])) == ({}, None, [])


GOES_ON = [
    (f"{kind}, {name}", *row[:2])
    for kind, rows in (("counted", COUNTED), ("kept", KEPT))
    for name, row in rows.items()
]


@pytest.mark.parametrize(("make", "loss"), [row[1:] for row in GOES_ON], ids=[row[0] for row in GOES_ON])
def test_torch_goes_on_from_it(
    make: Callable[[], nn.Module], loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this a step that is compiled would be right."""
    monkeypatch.setitem(globals(), "turned", deque(turned))
    monkeypatch.setitem(globals(), "steps", np.zeros(1))
    monkeypatch.setitem(globals(), "kept", {})
    monkeypatch.setitem(globals(), "hidden", None)
    monkeypatch.setitem(globals(), "counted", [0])
    monkeypatch.setitem(globals(), "numbers", {"calls": 0})
    monkeypatch.setitem(globals(), "calls", 0)
    monkeypatch.setitem(globals(), "settings", Settings())
    model = make()
    first, second = loss(model, batch()), loss(model, batch())
    assert not torch.equal(first, second)


def test_a_name_that_has_no_value_yet_is_no_counter() -> None:
    def loss(model: Any, batch: Any) -> torch.Tensor:
        return later(model, batch) if batch["x"].dim() > 2 else square(model, batch)

    trace(linear(), loss, batch())

    def later(model: Any, batch: Any) -> torch.Tensor:
        return square(model, batch)

    trace(linear(), loss, batch())


def trains(model: nn.Module) -> Callable[[Any], torch.Tensor]:
    """A loop body."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def body(batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss = square(model, batch)
        loss.backward()
        optimizer.step()
        return loss

    return body


def test_a_counter_behind_a_loop_body_is_refused() -> None:
    body = trains(model := Counting())
    with pytest.raises(TraceError, match=r"changes model\.calls"):
        compile_step(body, example=batch(), device="cpu")
    assert model.calls == 0
    compile_step(trains(Cached()), example=batch(), device="cpu")


@pytest.mark.parametrize("make", [Cached, Turned, Logging, Gathering, Warned])
def test_what_makes_no_difference_trains_as_in_torch(make: Callable[[], nn.Module], device: str) -> None:
    torch.manual_seed(0)
    model, reference = make().to(device), make().to(device)
    attributes = {name: value for name, value in vars(model).items() if not name.startswith("_")}
    reference.load_state_dict(model.state_dict())
    data = {key: value.to(device) for key, value in batch().items()}
    optimizer, eager = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, reference))
    step = compile_train_step(model, optimizer, loss_fn=square, example=data, device=device)
    for _ in range(3):
        eager.zero_grad()
        expected = square(reference, data)
        expected.backward()
        eager.step()
        torch.testing.assert_close(step.train_step(data), expected.detach())
    assert {name: value for name, value in vars(model).items() if not name.startswith("_")} == attributes
