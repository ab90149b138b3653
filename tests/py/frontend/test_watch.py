"""What is watched: every change is seen, whatever makes it, at its place in the list, and through a list of lists."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from types import CellType
from typing import Any

import pytest
import torch

from aicf_mlir import _C


class Holder:
    """An object whose attributes are watched through its `__dict__`."""

    def __init__(self) -> None:
        self.a, self.b = object(), object()


class Kin(Holder):
    """Of the same layout, so that a `Holder` may become one."""


Dictionary = dict[str, Any]
Place = tuple[Callable[[_C.Watch], object], Callable[[], object], Callable[[], object]]
"""How it is watched, a change of it, and the way back."""

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


def function_of(part: str, value: object) -> Callable[[], Place]:
    def place() -> Place:
        def own(x: float, by: float = 2.0, *, offset: float = 0.0) -> float:
            return by * x + offset

        before = getattr(own, part)
        return (
            lambda w: w.add_functions([test_a_change_back_is_no_change, own]),
            lambda: setattr(own, part, value),
            lambda: setattr(own, part, before),
        )

    return place


def members_of(change: Callable[[list[Any]], object]) -> Callable[[], Place]:
    def place() -> Place:
        members: list[Any] = [object(), object()]
        before = [*members]
        return (
            lambda w: w.add_members(members),
            lambda: change(members),
            lambda: members.__setitem__(slice(None), before),
        )

    return place


def instance_of(part: str, value: object) -> Callable[[], Place]:
    def place() -> Place:
        holder = Holder()
        before = getattr(holder, part)
        return (
            lambda w: w.add_instances([Kin(), holder]),
            lambda: setattr(holder, part, value),
            lambda: setattr(holder, part, before),
        )

    return place


def cell() -> Place:
    place = CellType(1)
    return (
        lambda w: w.add_cell(place),
        lambda: setattr(place, "cell_contents", 2),
        lambda: setattr(place, "cell_contents", 1),
    )


def class_attribute() -> Place:
    base = type("Base", (), {"a": 1})
    kind = type("Kind", (base,), {})
    return (
        lambda w: w.add_class_attribute(kind, "a"),
        lambda: setattr(base, "a", 2),
        lambda: setattr(base, "a", 1),
    )


def filled() -> Place:
    owner: Dictionary = {}
    return lambda w: w.add_empty([{}, owner]), lambda: owner.update(a=1), owner.clear


def trained() -> Place:
    tensor = torch.zeros(3, requires_grad=True)
    return (
        lambda w: w.add_trained([torch.zeros(1, requires_grad=True), tensor]),
        lambda: tensor.requires_grad_(False),
        lambda: tensor.requires_grad_(True),
    )


def called() -> Place:
    says = [True]
    return (
        lambda w: w.add_call(lambda: says[0], True),
        lambda: says.__setitem__(0, False),
        lambda: says.__setitem__(0, True),
    )


PLACES: dict[str, Callable[[], Place]] = {
    "code": function_of("__code__", KINDS["dict"].__code__),
    "defaults": function_of("__defaults__", (3.0,)),
    "keyword defaults": function_of("__kwdefaults__", None),
    "a member": members_of(lambda m: m.__setitem__(1, object())),
    "more members": members_of(lambda m: m.extend(range(1000))),
    "no members": members_of(lambda m: m.clear()),
    "a class": instance_of("__class__", Kin),
    "attributes": instance_of("__dict__", {}),
    "a cell": cell,
    "an attribute of a base": class_attribute,
    "an empty dictionary": filled,
    "requires_grad": trained,
    "what a function says": called,
}


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("depth", range(3))
def test_every_change_is_seen_at_its_place_and_through_other_lists(name: str, depth: int) -> None:
    add, change, back = PLACES[name]()
    watches = [_C.Watch()]
    watches[0].add_items({"a": object()})
    add(watches[0])
    watches[0].add_items({"b": object()})
    for _ in range(depth):
        watches.append(_C.Watch())
        watches[-1].add_call(lambda: None, None)
        watches[-1].add_watch(watches[-2])
        watches[-1].add_items({"c": object()})
    for _ in range(2):
        assert [watch.changed() for watch in watches] == [-1] * len(watches)
        change()
        assert [watch.changed() for watch in watches] == [1] * len(watches)
        assert [watch.changed(2) for watch in watches] == [-1] * len(watches)
        back()


@pytest.mark.parametrize("name", [n for n in PLACES if n not in ("an empty dictionary", "requires_grad")])
def test_what_a_list_has_accepted_another_list_expects_too(name: str) -> None:
    add, change, back = PLACES[name]()
    inner, outer = _C.Watch(), _C.Watch()
    add(inner)
    outer.add_watch(inner)
    assert outer.changed() == -1
    change()
    inner.accept(0)
    back()  # before the other list has looked
    assert outer.changed() == inner.changed() == 0
    inner.accept(0)
    assert outer.changed() == inner.changed() == -1


def test_a_version_of_a_class_that_was_accepted_is_expected() -> None:
    kind = type("Kind", (), {"a": 1})
    inner, outer = _C.Watch(), _C.Watch()
    inner.add_types([Holder, kind])
    outer.add_watch(inner)
    for value in (1, 2):
        assert outer.changed() == inner.changed() == -1
        type.__setattr__(kind, "a", value)
        assert outer.changed() == inner.changed() == 0
        inner.accept(0)


def test_a_list_that_is_filled_again_is_compared_as_it_is() -> None:
    inner, outer = _C.Watch(), _C.Watch()
    outer.add_watch(inner)
    for i in range(50):
        owners: list[Dictionary] = [{"a": object()} for _ in range(i)]
        inner.clear()
        for owner in owners:
            inner.add_items(owner)
        assert outer.changed() == -1
        if owners:
            owners[i // 2]["a"] = 1
            assert outer.changed() == 0
            assert inner.changed() == i // 2


def test_equal_members_in_other_memory_are_no_change() -> None:
    members: list[object] = [object(), object()]
    watch = _C.Watch()
    watch.add_members(members)
    for _ in range(3):
        members.extend(range(1000))
        del members[2:]
        assert watch.changed() == -1
    members[1] = object()
    assert watch.changed() == 0


def test_the_first_of_several_changes_is_found_whatever_its_kind() -> None:
    says, owner = [1], {"a": object()}
    watch = _C.Watch()
    for _ in range(2):
        watch.add_call(lambda: says[0], 1)
        watch.add_items(owner)
    says[0], owner["a"] = 2, object()
    assert [watch.changed(start) for start in range(5)] == [0, 1, 2, 3, -1]


def test_arguments_of_changed_are_checked() -> None:
    for wrong in (("a",), (1, 2)):
        with pytest.raises(TypeError):
            _C.Watch().changed(*wrong)
    with pytest.raises(TypeError, match="was not called"):
        _C.Watch.__new__(_C.Watch).changed()
