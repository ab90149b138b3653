"""The slots of a plan in the making, and their symbols: close to the user's names, legal, unique."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute

from aicf_mlir.dialects.plan import SlotOp
from aicf_mlir.dialects.plan.memory import slot_type
from aicf_mlir.ir.layouts import layout_of
from aicf_mlir.ir.registry import TensorSpec
from aicf_mlir.ir.roles import ROLES
from aicf_mlir.ir.tensor_op import AnyTensor

_ILLEGAL = re.compile(r"[^A-Za-z0-9_.$]")


def legal_symbol(name: str) -> str:
    """`name` with every illegal character replaced by `_`, e.g. "0.weight" as "_0.weight"."""
    symbol = _ILLEGAL.sub("_", name)
    return symbol if symbol[:1].isalpha() or symbol[:1] == "_" else f"_{symbol}"


class Symbols:
    """Hands out symbols; the same requests in the same order give the same symbols."""

    def __init__(self, reserved: Iterable[str] = ()):
        self._taken = set(reserved)
        self._count: dict[str, int] = {}

    def named(self, name: str, role: str = "") -> str:
        """A symbol for the user's `name`: `role.name` if that is taken, and then with a number."""
        base = symbol = legal_symbol(name)
        if symbol in self._taken and role:
            base = symbol = legal_symbol(f"{role}.{name}")
        number = 1
        while symbol in self._taken:
            number += 1
            symbol = f"{base}_{number}"
        self._taken.add(symbol)
        return symbol

    def numbered(self, prefix: str) -> str:
        """The next free symbol of prefix0, prefix1, …"""
        while True:
            number = self._count.get(prefix, 0)
            self._count[prefix] = number + 1
            if (symbol := f"{prefix}{number}") not in self._taken:
                self._taken.add(symbol)
                return symbol


class SlotTable:
    """The slots so far, in the order of the text."""

    def __init__(self) -> None:
        self.symbols = Symbols(ROLES)
        self.by_symbol: dict[str, SlotOp] = {}
        self._constants: dict[tuple[bytes, TensorSpec], SlotOp] = {}
        self._aliases: dict[tuple[str, MemRefType[Attribute]], SlotOp] = {}

    def _add(self, slot: SlotOp) -> SlotOp:
        self.by_symbol[slot.symbol] = slot
        return slot

    def named(self, symbol: str, spec: TensorSpec, role: str, label: str) -> SlotOp:
        """A slot that the user knows as `label`; `symbol` is its preferred name in the plan."""
        return self._add(SlotOp(self.symbols.named(symbol, role), slot_type(*spec), role, label=label))

    def temporary(self, spec: TensorSpec, name: str | None) -> SlotOp:
        """Memory of this step only, called after the value that is written there first."""
        return self._add(SlotOp(self._symbol(name), slot_type(*spec), "temp"))

    def _symbol(self, name: str | None) -> str:
        return self.symbols.numbered("v") if name is None else self.symbols.named(name)

    def constant(self, value: float, spec: TensorSpec) -> SlotOp:
        """A tensor that holds `value` everywhere; equal constants share a slot."""
        key = (struct.pack("<d", value), spec)
        if key not in self._constants:
            slot = SlotOp(self.symbols.numbered("c"), slot_type(*spec), "const", value=value)
            self._constants[key] = self._add(slot)
        return self._constants[key]

    def alias(self, source: SlotOp, spec: TensorSpec, name: str | None) -> SlotOp:
        """The memory of `source` in another shape, called `name`; the slot that owns it where the shape is its own."""
        owner = self.by_symbol[source.root]
        return owner if owner.spec == spec else self._seen_as(owner, slot_type(*spec), name)

    def part(self, source: SlotOp, type_: AnyTensor, name: str | None) -> SlotOp:
        """The elements of `source` at the layout of `type_`, as a slot called `name`."""
        layout = layout_of(type_)
        memory = MemRefType(type_.get_element_type(), layout.shape, layout.to_attribute())
        return self._seen_as(self.by_symbol[source.root], memory, name)

    def _seen_as(self, owner: SlotOp, type_: MemRefType[Attribute], name: str | None) -> SlotOp:
        key = (owner.symbol, type_)
        if key not in self._aliases:
            slot = SlotOp(self._symbol(name), type_, owner.role.data, alias=owner.symbol)
            self._aliases[key] = self._add(slot)
        return self._aliases[key]
