"""What every op computes that is one generated kernel: its body, on its operands repeated to its domain."""

from __future__ import annotations

import numpy as np

from aicf_mlir.dialects.nn.generated import GeneratedInterface
from aicf_mlir.interpreters.body import evaluate
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.interpreters.runner import Operands
from aicf_mlir.ir.tensor_op import shape_of


def generated(op: GeneratedInterface, operands: Operands) -> tuple[Array, ...]:
    """Each result in its shape, before it is rounded."""
    domain, reduced = op.domain, op.reduced_dims
    kept = tuple(size for dim, size in enumerate(domain) if dim not in reduced)
    shapes = [shape_of(result) for result in op.results]
    walked = [domain if whole else kept for whole in op.whole_results]
    wide = [np.broadcast_to(operand, domain) for operand in operands]
    results = evaluate(op.body(), wide, domain, reduced, walked)
    return tuple(np.reshape(result, shape) for result, shape in zip(results, shapes, strict=True))
