"""The origin of a number that is not finite: the first op that makes it from finite operands, or an argument."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from aicf_mlir.interpreters import make_interpreter
from aicf_mlir.interpreters.numerics import Array, widen


def origin_of_non_finite(
    module: ModuleOp, function: func.FuncOp, inputs: Sequence[Array], wanted: SSAValue
) -> tuple[SSAValue, Array] | None:
    """The value that made `wanted` not finite when `function` runs on `inputs`, and its contents.

    It is the result of an op whose operands on the way are all finite, or an argument. None where `wanted` comes
    out finite.
    """
    interpreter = make_interpreter(module)
    values: dict[SSAValue, Array] = dict(zip(function.args, inputs, strict=True))
    for op in list(function.body.block.ops)[:-1]:
        results = interpreter.run_op(op, tuple(values[operand] for operand in op.operands))
        values.update(zip(op.results, results, strict=True))
    if _is_finite(values[wanted]):
        return None
    while isinstance(op := wanted.owner, Operation):
        sources = [operand for operand in op.operands if not _is_finite(values[operand])]
        if not sources:
            break
        # An infinity may be meant, as in a mask; a NaN is not.
        wanted = next((source for source in sources if np.isnan(widen(values[source])).any()), sources[0])
    return wanted, values[wanted]


def _is_finite(value: Array) -> bool:
    return value.dtype.kind in "iub" or bool(np.isfinite(widen(value)).all())
