"""The results of each nn op, in NumPy: float64 inside, rounded once to the type of the result."""

from __future__ import annotations

from math import prod

import numpy as np
from xdsl.ir import Operation

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.launches import attributes_of, launch_of, operands_of
from aicf_mlir.host.ranks import gathered
from aicf_mlir.interpreters import checks, kernel, windows
from aicf_mlir.interpreters.arithmetic import Arithmetic
from aicf_mlir.interpreters.generated import generated
from aicf_mlir.interpreters.kernel import Call
from aicf_mlir.interpreters.numerics import Array, pairwise_sum
from aicf_mlir.interpreters.runner import Meaning, Operands, WithArithmetic, functions
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.expect import is_float
from aicf_mlir.ir.generated import GeneratedInterface
from aicf_mlir.ir.properties import is_true
from aicf_mlir.ir.registry import Schema, segments
from aicf_mlir.ir.tensor_op import element_type, shape_of


def detach(op: nn.DetachOp, operands: Operands) -> Array:
    """The operand itself."""
    return operands[0]


def custom_gradient(op: nn.CustomGradientOp, operands: Operands) -> tuple[Array, ...]:
    """The values; differentiation defines the gradient."""
    return tuple(operands[: len(op.of)])


def cast(op: nn.CastOp, operands: Operands) -> Array | tuple[Array, ...]:
    """A cast that rounds once, if the result is rounded; other types by the body."""
    return operands[0] if is_float(op.result) else generated(op, operands)


def total(op: nn.ReductionOp, operands: Operands) -> Array | tuple[Array, ...]:
    """The sum; over no dimensions it is the operand itself, whose -0.0 a sum would lose."""
    return generated(op, operands) if len(op.dims) else operands[0]


def linear(op: nn.LinearOp, operands: Operands) -> Array:
    """The product x · wᵀ, plus the bias if there is one."""
    x, w, *bias = operands
    return np.matmul(x, w.T) + (bias[0] if bias else 0.0)


def var_mean(op: nn.VarMeanOp, operands: Operands) -> tuple[Array, Array]:
    """The mean squared difference from the mean, and the mean."""
    (x,) = operands
    dims, keepdim = tuple(op.dims.get_values()), is_true(op.keepdim)
    centre = np.divide(pairwise_sum(x, dims, keepdims=True), prod(x.shape[dim] for dim in dims))
    total = pairwise_sum(np.square(x - centre), dims, keepdims=keepdim)
    return np.divide(total, op.divisor), centre.reshape(shape_of(op.mean))


def check_value(op: nn.CheckValueOp, operands: Operands) -> Array:
    """The first element that the rule refuses, by its position."""
    status, x = operands
    refused = nn.RefusedOp(op.x, op.rule.data)
    (found,) = generated(refused, (x,))
    refused.erase()  # it is in no block, and must not stay among the readers of x
    return checks.check_index(status, [found.astype(np.int64)], [1], None, op.code.value.data)


def constant(op: nn.ConstantOp, operands: Operands) -> Array:
    """The value everywhere."""
    return np.full(shape_of(op.result), op.value.value.data)


def reshape(op: nn.ReshapeOp, operands: Operands) -> Array:
    """Row-major order throughout."""
    return np.reshape(operands[0], shape_of(op.result))


def of_launch(schema: Schema) -> WithArithmetic:
    """The meaning of the kernel op that the nn op is."""

    def meaning(op: Operation, operands: Operands, arithmetic: Arithmetic) -> tuple[Array, ...]:
        given = operands_of(op, schema)
        sizes = [len(values) for values in given.values()]
        elements = {name: [element_name(element_type(x)) for x in values] for name, values in given.items()}
        types = [(element_name(element_type(result)), shape_of(result)) for result in op.results]
        inputs, outputs = (
            segments(schema.inputs, sizes, operands),
            segments(schema.outputs, None, types),
        )
        call = Call(inputs, attributes_of(op, schema), outputs, arithmetic=arithmetic, elements=elements)
        return tuple(kernel.MEANINGS[schema.name](call))

    return WithArithmetic(meaning)


def transpose(op: nn.TransposeOp, operands: Operands) -> Array:
    """Dimension i of the result is dimension perm[i]."""
    return np.transpose(operands[0], op.perm.get_values())


def split(op: nn.SplitOp, operands: Operands) -> tuple[Array, ...]:
    """The parts, in order."""
    ends = np.cumsum(op.sizes.get_values())[:-1]
    return tuple(np.split(operands[0], ends, axis=op.dim.value.data))


def concat(op: nn.ConcatOp, operands: Operands) -> Array:
    """The operands one after the other."""
    return np.concatenate(operands, axis=op.dim.value.data)


def sum_of_ranks(op: nn.SumOfRanksOp, operands: Operands) -> Array:
    """The sum over all ranks, one after the other."""
    total, *rest = gathered(op.group.data, op.ranks.value.data, operands[0])
    for each in rest:
        total = total + each
    return total


def broadcast_to(op: nn.BroadcastToOp, operands: Operands) -> Array:
    """Repeated to the shape of the result."""
    return np.broadcast_to(operands[0], shape_of(op.result))


MEANINGS: dict[type[Operation], Meaning | WithArithmetic] = {
    **{op: of_launch(schema) for op in nn.NN.operations if (schema := launch_of(op))},
    **{op: WithArithmetic(generated) for op in nn.NN.operations if issubclass(op, GeneratedInterface)},
    nn.CastOp: cast,
    nn.SumOp: total,
    nn.MeanOp: total,
    nn.ConstantOp: constant,
    nn.CustomGradientOp: custom_gradient,
    nn.DetachOp: detach,
    nn.LinearOp: linear,
    nn.ReshapeOp: reshape,
    nn.TransposeOp: transpose,
    nn.BroadcastToOp: broadcast_to,
    nn.SplitOp: split,
    nn.ConcatOp: concat,
    nn.VarMeanOp: var_mean,
    nn.CheckValueOp: check_value,
    nn.SumOfRanksOp: sum_of_ranks,
    **windows.MEANINGS,
}
"""A row for each op of the dialect that is not already a launch."""

NNFunctions = functions("NNFunctions", MEANINGS)
"""The implementations for xDSL's interpreter."""
