"""Parameters and gradients that are divided among ranks, and what else a rank has for itself: what a function says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, StringAttr, i64
from xdsl.utils.hints import isa

from aicf_mlir.ir.signature import result_labels

PARTS = "aicf.parts"
"""The names of the parameters of each rank, in a function whose parameters are not gathered yet."""
GRADIENTS = "aicf.gradients"
"""The names of the gradients of all ranks, in a function whose results have those of one rank; its group, and this rank."""

OWN_TEXT = "aicf.own_text"
"""In a function that exchanges in its forward pass: each rank may have another one, which begins with the number of a rank, say.
The collectives are the same. Once gradients are exchanged, the names of those of each bucket.
"""

Names = Sequence[str]


@dataclass(frozen=True)
class DividedGradients:
    """Gradients of which each rank has those of its own parameters."""

    group: str
    rank: int
    names: Names
    """The names of all gradients, in the order in which a function that has them all returns them."""
    parts: Sequence[Names]
    """Of these, the names of each rank; every rank has a gradient that is in no part."""

    @staticmethod
    def of(function: func.FuncOp) -> DividedGradients | None:
        """What the attributes of a function say; None for one that has the gradients of all ranks."""
        written, parts = function.attributes.get(GRADIENTS), parts_in(function)
        if parts is None or not isinstance(written, DictionaryAttr):
            return None
        group, rank, names = (written.data.get(key) for key in ("group", "rank", "names"))
        if not isinstance(group, StringAttr) or not isinstance(rank, IntegerAttr):
            return None
        if not isa(names, ArrayAttr[StringAttr]):
            return None
        return DividedGradients(group.data, rank.value.data, [name.data for name in names], parts)

    def write(self, function: func.FuncOp) -> None:
        """Let a function say so."""
        write_parts(function, self.parts)
        named = ArrayAttr(map(StringAttr, self.names))
        function.attributes[GRADIENTS] = DictionaryAttr(
            {"group": StringAttr(self.group), "names": named, "rank": IntegerAttr(self.rank, i64)}
        )


def write_parts(function: func.FuncOp, parts: Sequence[Names]) -> None:
    """Write the names of the parameters of each rank."""
    function.attributes[PARTS] = ArrayAttr([ArrayAttr(map(StringAttr, part)) for part in parts])


def parts_in(function: func.FuncOp) -> list[list[str]] | None:
    """The names of the parameters of each rank; None where a function says nothing of them."""
    parts = function.attributes.get(PARTS)
    if not isa(parts, ArrayAttr[ArrayAttr[StringAttr]]):
        return None
    return [[name.data for name in part] for part in parts]


def gradient_names(function: func.FuncOp) -> list[str]:
    """The names of the gradients of a function, with those that only other ranks have, in their order."""
    if (divided := DividedGradients.of(function)) is not None:
        return list(divided.names)
    return [label.name for label in result_labels(function) if label.role == "grad"]
