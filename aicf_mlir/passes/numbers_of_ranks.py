"""A number of each gradient, where the gradients are divided among ranks: each rank computes its own, and all get to know all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.emitter import Emitter
from aicf_mlir.ir.division import DividedGradients
from aicf_mlir.passes.average_ranks import gather


def known_to_all(
    emitter: Emitter,
    divided: DividedGradients | None,
    own: Mapping[str, SSAValue],
    names: Sequence[str],
    element: Attribute,
) -> list[SSAValue]:
    """A number of each of these gradients, a vector of one element, in the order of `names`.

    `own` has those of the gradients that this rank has. Where gradients are divided, the ranks gather the others: each fills its
    own up to as many as the rank with the most has.
    """
    if divided is None:
        return [own[name] for name in names]
    parts = [[name for name in part if name in names] for part in divided.parts]
    owned = {name for part in parts for name in part}
    found = {name: own[name] for name in names if name not in owned}
    if most := max(map(len, parts)):
        mine = [own[name] for name in parts[divided.rank]]
        if rest := most - len(mine):
            mine.append(emitter.emit(nn.ConstantOp(0, TensorType(element, [rest]))))
        joined = mine[0] if len(mine) == 1 else emitter.emit(nn.ConcatOp(mine, 0), "part")
        rows = gather(emitter, joined, divided.group, len(parts))
        for part, row in zip(parts, rows, strict=True):
            sizes = [1] * len(part) + [most - len(part)] * (most > len(part))
            pieces = [row] if len(sizes) == 1 else emitter.builder.insert(nn.SplitOp(row, 0, sizes)).results
            found |= zip(part, pieces, strict=False)
    return [found[name] for name in names]
