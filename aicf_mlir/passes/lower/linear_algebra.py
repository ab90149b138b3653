"""Matrix products: linear becomes one 2-D gemm and a bias_add, for x of any rank."""

from __future__ import annotations

import math

from xdsl.ir import Operation

from aicf_mlir.dialects import kernel, nn
from aicf_mlir.ir.expect import with_shape
from aicf_mlir.ir.properties import is_true
from aicf_mlir.ir.tensor_op import shape_of


def lower_matmul(op: nn.MatmulOp) -> list[Operation]:
    """The same product; attributes that are false stay away."""
    return [kernel.GemmOp.launch(op.operands, op.result_types, **flags_of(op))]


def flags_of(op: nn.MatmulOp | nn.LinearOp) -> dict[str, bool]:
    """The attributes of a product that are true."""
    names = [row.name for row in kernel.GemmOp.schema_of().attrs if row.name in op.properties]
    return {name: True for name in names if is_true(getattr(op, name))}


def lower_linear(op: nn.LinearOp) -> list[Operation]:
    """One 2-D gemm and a bias_add: leading dimensions of x are folded into rows, and unfolded at the end."""
    *batch, k = shape_of(op.x)
    rows, columns = math.prod(batch), shape_of(op.w)[0]
    ops: list[Operation] = []
    x = op.x
    if len(batch) != 1:
        ops.append(kernel.ReshapeOp.build_op([x], [with_shape(x, (rows, k))]))
        x = ops[-1].results[0]
    flat = with_shape(x, (rows, columns))
    ops.append(kernel.GemmOp.launch([x, op.w], [flat], trans_b=True, **flags_of(op)))
    if op.bias is not None:
        ops.append(kernel.BiasAddOp.launch([ops[-1], op.bias], [flat]))
    if len(batch) != 1:
        ops.append(kernel.ReshapeOp.build_op([ops[-1]], op.result_types))
    return ops


RULES = {nn.MatmulOp: lower_matmul, nn.LinearOp: lower_linear}
