"""Objects all of whose methods raise: a step that holds them looks past their classes, and nothing of ours calls them."""

from __future__ import annotations

import enum
import inspect
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import aicf_mlir
from aicf_mlir import compile_eval_step, compile_train_step
from aicf_mlir.errors import GuardError

OURS = str(Path(aicf_mlir.__file__).parent)
NEEDED = {
    *("__new__", "__init__", "__hash__", "__init_subclass__", "__setattr__", "__dict__"),
    *("__class__", "__getattribute__"),
}
"""What a test itself needs of an object, what is no method, and what isinstance asks: torch asks it of all that a model has."""


class Unwilling(Exception):
    """What hostile objects raise."""


def hostile(kind: type, *, but: tuple[str, ...] = ()) -> Any:
    """A subclass of `kind` all of whose methods raise and note which file of ours has called them."""
    called: list[str] = []

    def raising(name: str) -> Callable[..., Any]:
        def method(*_: Any, **__: Any) -> Any:
            caller = inspect.stack(0)[1].frame
            if caller.f_code.co_filename.startswith(OURS):
                called.append(f"{name} at {caller.f_code.co_filename}:{caller.f_lineno}")
            raise Unwilling(name)

        return method

    names = {
        *dir(kind),
        *("__eq__", "__bool__", "__len__", "__iter__", "__getitem__", "__contains__"),
        *("__getattr__", "__float__", "__array__", "__torch_function__", "get", "items", "keys", "values"),
    }
    methods: dict[str, Any] = {"__hash__": object.__hash__} | {
        name: raising(name) for name in names - NEEDED - {*but}
    }
    made: Any = type(f"Hostile{kind.__name__}", (kind,), methods)
    made.called = called
    return made


@dataclass
class Fields:
    """A batch."""

    x: torch.Tensor
    t: torch.Tensor


DATACLASS = hostile(Fields, but=("x", "t", "__dataclass_fields__"))
PLAIN, DICT, LIST, TUPLE, SET, DEQUE, ORDERED, FLOAT = (
    hostile(kind) for kind in (object, dict, list, tuple, set, deque, OrderedDict, float)
)
KEY = hostile(object, but=("__repr__",))  # which torch writes of what a model has
ARRAY = hostile(np.ndarray, but=("__array_finalize__", "__array_priority__", "__array_struct__"))
KINDS = (PLAIN, DICT, LIST, TUPLE, SET, DEQUE, ORDERED, FLOAT, KEY, ARRAY, DATACLASS)


class Level(enum.Enum):
    LOW, HIGH = 1.0, 2.0

    def __eq__(self, other: object) -> bool:
        raise Unwilling("__eq__")

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        raise Unwilling("__repr__")


OBJECTS: dict[str, Callable[[], Any]] = {
    "object": PLAIN,
    "dictionary": lambda: DICT(a=1.0),
    "ordered dictionary": lambda: filled(ORDERED(), lambda d: OrderedDict.__setitem__(d, "a", 1.0)),
    "list": lambda: LIST((1.0, 2.0)),
    "tuple": lambda: TUPLE((1.0, 2.0)),
    "set": lambda: SET((1.0, 2.0)),
    "deque": lambda: filled(DEQUE(), lambda d: deque.append(d, 1.0)),
    "number": lambda: FLOAT(2.0),
    "array": lambda: np.ndarray.view(np.ones(3), ARRAY),
    "member": lambda: Level.LOW,
    "dictionary of hostile keys": lambda: {KEY(): 1.0, "a": PLAIN()},
    "set of hostile members": lambda: {PLAIN(), PLAIN()},
    "list of hostile members": lambda: [PLAIN(), DICT(a=LIST())],
}


def filled(value: Any, by: Callable[[Any], object]) -> Any:
    by(value)
    return value


class Config:
    """What a model is made of."""

    held: Any

    def __init__(self) -> None:
        self.factor = 1.0


class Slotted:
    __slots__ = ("held",)


held_by_the_module: Any = None


class Net(nn.Module):
    def __init__(self, config: Any, held: Any):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.config = config
        vars(self)["held"] = held  # torch asks for the class of what is set

    def forward(self, x: torch.Tensor, *looked: Any) -> torch.Tensor:
        del looked
        return self.fc(x) * self.config.factor


class Slot:
    """A step with an object everywhere that a step may hold one, each read by its code."""

    def __init__(self, make: Callable[[], Any]):
        global held_by_the_module
        self.config, self.slotted, self.table, self.row = Config(), Slotted(), {"held": make()}, [make()]
        self.config.held, self.slotted.held = make(), make()
        held_by_the_module, cell = make(), make()
        torch.manual_seed(0)
        self.net = Net(self.config, make())
        self.batch = {"x": torch.randn(2, 4), "t": torch.randn(2, 4)}

        def loss_fn(model: Any, batch: Any) -> torch.Tensor:
            looked = model.held, model.config.held, self.slotted.held, self.table["held"], self.row[0]
            y = model(batch["x"], *looked, cell, held_by_the_module)
            return (y - batch["t"]).square().mean()

        self.step = compile_train_step(
            self.net,
            torch.optim.SGD(self.net.parameters(), lr=0.1),
            loss_fn=loss_fn,
            example=self.batch,
            device="cpu",
        )


def none_called() -> None:
    """Nothing of ours has called a method of a hostile object's class."""
    for kind in KINDS:
        called = type.__getattribute__(kind, "called")
        found = [*called]
        called.clear()
        assert not found


@pytest.mark.parametrize("name", OBJECTS)
def test_a_step_holds_hostile_objects(name: str) -> None:
    global held_by_the_module
    slot = Slot(OBJECTS[name])
    slot.step.train_step(slot.batch)
    changes: list[Callable[[], object]] = [
        lambda: setattr(slot.config, "held", OBJECTS[name]()),
        lambda: setattr(slot.slotted, "held", OBJECTS[name]()),
        lambda: vars(slot.net).update(held=OBJECTS[name]()),
        lambda: slot.table.update(held=OBJECTS[name]()),
        lambda: slot.row.__setitem__(0, OBJECTS[name]()),
    ]
    for change in changes:
        change()
        slot.step.train_step(slot.batch)  # traced again, and the same
    held_by_the_module = OBJECTS[name]()
    slot.config.factor = 2.0
    with pytest.raises(GuardError, match=r"factor was 1\.0, now 2\.0"):
        slot.step.train_step(slot.batch)
    slot.step.guards()
    slot.step.recompile()
    slot.step.train_step(slot.batch)
    slot.step.capture()
    slot.step.replay()
    none_called()


@pytest.mark.parametrize("kind", [DICT, ORDERED, LIST, TUPLE, DATACLASS], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("is_eval", [False, True])
def test_a_batch_is_read_past_its_classes(kind: Any, is_eval: bool) -> None:
    x, t = torch.randn(2, 4), torch.randn(2, 4)

    def batch() -> Any:
        if issubclass(kind, OrderedDict):
            return filled(
                kind(), lambda d: [OrderedDict.__setitem__(d, k, v) for k, v in (("x", x), ("t", t))]
            )
        return kind(x=x, t=t) if issubclass(kind, (dict, Fields)) else kind((x, t))

    key, of_fields = "x" if issubclass(kind, dict) else 0, kind is DATACLASS

    def loss_fn(model: Any, given: Any) -> torch.Tensor:
        return model(given.x if of_fields else given[key]).sum()

    net = nn.Linear(4, 4)
    if is_eval:
        evaluated = compile_eval_step(net, loss_fn=loss_fn, example=batch(), device="cpu")
        torch.testing.assert_close(evaluated.eval_step(batch()), net(x).sum().detach())
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        given = loss_fn if of_fields else None
        step = compile_train_step(net, optimizer, loss_fn=given, example=batch(), device="cpu")
        wanted = (net(x).sum() if given else (net(x) - t).square().mean()).detach()
        torch.testing.assert_close(step.train_step(batch()), wanted)
    none_called()
