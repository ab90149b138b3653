"""A watched dictionary: whatever changes it is seen, also what a specialised instruction or another dictionary does."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch

from aicf_mlir import _C


class Holder:
    """An object whose attributes are watched through its `__dict__`."""

    def __init__(self) -> None:
        self.a, self.b = object(), object()


Dictionary = dict[str, Any]

CHANGES: dict[str, Callable[[Dictionary], object]] = {
    "set": lambda d: d.__setitem__("a", object()),
    "set behind": lambda d: d.__setitem__("b", object()),
    "new key": lambda d: d.__setitem__("c", object()),
    "del": lambda d: d.__delitem__("a"),
    "pop": lambda d: d.pop("a"),
    "popitem": lambda d: d.popitem(),
    "update": lambda d: d.update(a=1),
    "|=": lambda d: d.__ior__({"b": 2}),
    "setdefault": lambda d: d.setdefault("c", 3),
    "clear": lambda d: d.clear(),
    "clear and refill": lambda d: (d.clear(), d.update(a=1, b=2)),
    "exec": lambda d: exec("a = 5", {}, d),
}
KINDS: dict[str, Callable[[], Dictionary]] = {
    "dict": lambda: {"a": object(), "b": object()},
    "OrderedDict": lambda: OrderedDict(a=object(), b=object()),
    "defaultdict": lambda: defaultdict(object, a=object(), b=object()),
    "attributes": lambda: vars(Holder()),
    "attributes of a module": lambda: vars(torch.nn.Linear(1, 1)) | {"a": object(), "b": object()},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_a_dictionary_is_seen(kind: str, change: str) -> None:
    owner = KINDS[kind]()
    every, some = _C.Watch(), _C.Watch()
    every.add_items(owner)
    some.add_namespace(owner, ["a", "b", "c"])
    for _ in range(3):
        assert every.changed() == some.changed() == -1
    CHANGES[change](owner)
    assert every.changed() == some.changed() == 0
    every.accept(0)
    some.accept(0)
    assert every.changed() == some.changed() == -1


def test_an_attribute_that_a_hot_loop_writes_is_seen_each_time() -> None:
    holder = Holder()
    watch = _C.Watch()
    watch.add_namespace(vars(holder), ["a"])
    for _ in range(1000):  # the store becomes a specialised instruction
        holder.a = object()
        assert watch.changed() == 0
        watch.accept(0)
        holder.b = object()
        assert watch.changed() == -1


def test_a_change_back_is_no_change() -> None:
    owner: Dictionary = {"a": object(), "b": object()}
    watch = _C.Watch()
    watch.add_items(owner)
    before = owner["a"]
    owner["a"] = 1
    assert watch.changed() == 0
    owner["a"] = before
    assert watch.changed() == -1
    assert watch.changed() == -1


def test_changes_are_found_one_after_the_other() -> None:
    owners: list[Dictionary] = [{"a": object()} for _ in range(100)]
    watch = _C.Watch()
    for owner in owners:
        watch.add_items(owner)
    owners[7]["a"], owners[99]["a"] = 1, 2
    assert watch.changed() == 7
    assert watch.changed(8) == 99
    watch.accept(7)
    assert watch.changed() == 99
    watch.accept(99)
    assert watch.changed() == -1
    watch.clear()
    assert watch.changed() == -1
    assert len(watch) == 0
