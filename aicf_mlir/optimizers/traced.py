"""Rules of traced optimizers: their param groups and states. A function of the nn dialect defines their computation.

{kind = "traced", title = "Lion", update = @step_update, params = ["weight"], states = {weight = ["exp_avg"]},
 settings = {lr = "lr", betas = ["beta1", "beta2"], eps = [unit, "eps_2"]}}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from aicf_mlir.optimizers.rule import Setting, UpdateRule
from aicf_mlir.optimizers.slots import OptimizerSlot

EXAMPLE = 0.1
"""A value of a hyperparameter for tools that have no optimizer."""


@dataclass(frozen=True)
class TracedRule(UpdateRule):
    """One param group of an optimizer whose step was traced. A subclass, of `with_settings`, knows the entries of the group."""

    title: str = ""
    """The class of the optimizer."""
    function: str = ""
    """The symbol of the function that updates the parameters of all groups."""
    kept: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The states of each parameter."""

    KIND = "traced"
    TORCH = ()
    SETTINGS = ()
    FLAGS = ()

    @classmethod
    def with_settings(cls, settings: Sequence[Setting]) -> type[TracedRule]:
        """The class of rules whose groups have these entries."""
        return type(cls.__name__, (cls,), {"SETTINGS": tuple(settings), "__module__": cls.__module__})

    @property
    def flags(self) -> dict[str, bool]:
        return {}

    @property
    def states(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for names in self.kept.values() for name in names))

    @property
    def counts_steps(self) -> bool:
        return False

    def state_slots(self, group: int, param: str) -> list[OptimizerSlot]:
        return [OptimizerSlot(group, name, param) for name in self.kept.get(param, ())]

    def attributes(self) -> dict[str, Attribute]:
        kept = {param: ArrayAttr([StringAttr(name) for name in names]) for param, names in self.kept.items()}
        return {
            "title": StringAttr(self.title),
            "update": SymbolRefAttr(self.function),
            "settings": DictionaryAttr({row.key: _entry(row) for row in self.SETTINGS}),
            "states": DictionaryAttr(kept),
        }

    @classmethod
    def of_attributes(cls, entries: Mapping[str, Attribute]) -> TracedRule:  # pyright: ignore[reportIncompatibleMethodOverride]
        wanted = {
            "title": StringAttr,
            "update": SymbolRefAttr,
            "settings": DictionaryAttr,
            "states": DictionaryAttr,
        }
        if set(entries) != set(wanted) or not all(
            isinstance(entries[key], kind) for key, kind in wanted.items()
        ):
            raise VerifyException(
                f"expected the title, the update, the settings and the states of a traced optimizer, got {', '.join(entries)}"
            )
        given: Any = entries
        kept: dict[str, tuple[str, ...]] = {}
        for param, names in given["states"].data.items():
            if not isa(names, ArrayAttr[StringAttr]):
                raise VerifyException(f"expected the names of the states of {param}, got {names}")
            kept[param] = tuple(name.data for name in names)
        rule = cls.with_settings([_setting(key, entry) for key, entry in given["settings"].data.items()])
        return rule(given["title"].data, given["update"].root_reference.data, kept)

    def described(self) -> dict[str, Any]:
        return {
            "kind": self.KIND,
            "title": self.title,
            "settings": {row.key: list(row.slots) for row in self.SETTINGS},
            "states": {param: list(names) for param, names in self.kept.items()},
        }

    def advance(self, arguments: Mapping[str, SSAValue], element: Attribute) -> Operation:
        self._refuse()

    def update(
        self,
        p: SSAValue,
        g: SSAValue,
        states: Sequence[SSAValue],
        arguments: Mapping[str, SSAValue],
        index: int,
    ) -> Operation:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise NotImplementedError(f"@{self.function} updates all parameters at once")


def _entry(row: Setting) -> Attribute:
    if row.members is None:
        return StringAttr(row.slots[0])
    by_place = {place: StringAttr(slot) for slot, place in row.members.items()}
    return ArrayAttr[Attribute]([by_place.get(i, UnitAttr()) for i in range(max(by_place) + 1)])


def setting(key: str, slots: Sequence[str] | str) -> Setting:
    """An entry that is one number, or several; members that are no numbers have the name ""."""
    if isinstance(slots, str):
        return Setting(key, {slots: EXAMPLE})
    places = {slot: place for place, slot in enumerate(slots) if slot}
    return Setting(key, dict.fromkeys(places, EXAMPLE), tuple(places.values()))


def _setting(key: str, entry: Attribute) -> Setting:
    if isinstance(entry, StringAttr):
        return setting(key, entry.data)
    members = list(cast("ArrayAttr[Attribute]", entry)) if isinstance(entry, ArrayAttr) else []
    names = [member.data if isinstance(member, StringAttr) else "" for member in members]
    if not any(names) or not all(isinstance(member, StringAttr | UnitAttr) for member in members):
        raise VerifyException(f"expected the names of the hyperparameters in the setting {key}, got {entry}")
    return setting(key, names)
