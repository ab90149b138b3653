"""Matrix products: linear as torch defines it, and matmul with transposed operands.

With `allow_tf32` kernels may round operands of f32 to TF32 before they multiply (csrc/kernels/gemm/problem.h); the meaning of an
op is the exact product. The products of its gradient have the mark too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import DYNAMIC_INDEX, BoolAttr, TensorType, f32, f64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, prop_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.broadcasting import SumOp
from aicf_mlir.dialects.nn.common import Canonicalized, ValueOp
from aicf_mlir.dialects.nn.pointwise import AddOp
from aicf_mlir.dialects.nn.shape import ReshapeOp, TransposeOp
from aicf_mlir.ir.expect import Value, expect_float, expect_rank, expect_type, with_shape
from aicf_mlir.ir.interfaces import DifferentiableInterface
from aicf_mlir.ir.properties import bool_attr, is_true
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of, tensor_type

__all__ = ["LinearOp", "MatmulOp"]


def matmul_type(a: Value, b: Value, trans_a: bool, trans_b: bool) -> AnyTensor:
    """[B.., m, n] for op(a) of [B.., m, k] and op(b) of [B.., k, n]."""
    expect_float("a", a)
    *batch_a, m, k = expect_rank("a", a, at_least=2)
    *batch_b, k_b, n = expect_rank("b", b, at_least=2)
    m, k = (k, m) if trans_a else (m, k)
    k_b, n = (n, k_b) if trans_b else (k_b, n)
    got = f"got a: {tensor_type(a)}{' transposed' * trans_a}, b: {tensor_type(b)}{' transposed' * trans_b}"
    if element_type(a) != element_type(b):
        raise VerifyException(f"expected one element type, {got}; cast one of them")
    if batch_a != batch_b:
        raise VerifyException(f"expected equal leading dimensions, {got}; broadcast one of them")
    if k != k_b:
        raise VerifyException(f"expected equal contracted dimensions, got {k} and {k_b}; {got}")
    return with_shape(a, [*batch_a, m, n])


def expect_tf32_allowed(value: Value) -> None:
    """Raise VerifyException for the operand of a product that is not of f32: there is nothing to round to TF32."""
    if element_type(value) != f32:
        raise VerifyException(f"allow_tf32: expected operands of f32, got {tensor_type(value)}")


@irdl_op_definition
class MatmulOp(ValueOp, DifferentiableInterface, Canonicalized):
    """op(a) · op(b) over the last two dimensions; op transposes them according to `trans_a` / `trans_b`."""

    name = "nn.matmul"
    LAUNCH: ClassVar = "gemm"

    a = operand_def(TensorType)
    b = operand_def(TensorType)
    trans_a = prop_def(BoolAttr, default_value=bool_attr(False))
    trans_b = prop_def(BoolAttr, default_value=bool_attr(False))
    allow_tf32 = prop_def(BoolAttr, default_value=bool_attr(False))

    def __init__(
        self, a: Value, b: Value, trans_a: bool = False, trans_b: bool = False, *, allow_tf32: bool = False
    ):
        super().__init__(
            operands=[a, b],
            properties={
                "trans_a": bool_attr(trans_a),
                "trans_b": bool_attr(trans_b),
                "allow_tf32": bool_attr(allow_tf32),
            },
            result_types=[matmul_type(a, b, trans_a, trans_b)],
        )

    def inferred_type(self) -> AnyTensor:
        if is_true(self.allow_tf32):
            expect_tf32_allowed(self.a)
        return matmul_type(self.a, self.b, is_true(self.trans_a), is_true(self.trans_b))

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        a, b, trans_a, trans_b = self.a, self.b, is_true(self.trans_a), is_true(self.trans_b)
        product = partial(MatmulOp, allow_tf32=is_true(self.allow_tf32))
        if a is b and trans_a != trans_b and self.is_wide() and element_type(a) in (f32, f64):
            *batch, row, column = range(len(shape_of(g)))
            flipped = builder.insert(TransposeOp(g, [*batch, column, row])).result
            both = builder.insert(AddOp(g, flipped)).result
            return [builder.insert(product(a, both) if trans_a else product(both, a)).result, None]
        da = product(b, g, trans_b, True) if trans_a else product(g, b, False, not trans_b)
        db = product(g, a, True, trans_a) if trans_b else product(a, g, not trans_a, False)
        return [builder.insert(da).result, builder.insert(db).result]

    def is_wide(self) -> bool:
        """True if the result is no larger than op(a): to add to it costs less than one more product."""
        rows, terms = reversed(shape_of(self.a)[-2:]) if is_true(self.trans_a) else shape_of(self.a)[-2:]
        return rows <= terms


def linear_type(x: Value, w: Value, bias: Value | None) -> AnyTensor:
    """[B.., N] for x of [B.., K], w of [N, K] and bias of [N]."""
    expect_float("x", x)
    *batch, k = expect_rank("x", x, at_least=1)
    shape = shape_of(w)
    wanted = with_shape(x, [DYNAMIC_INDEX, k])
    if len(shape) != 2 or shape[1] != k or element_type(w) != element_type(x):
        raise VerifyException(f"expected w of type {wanted} for x: {tensor_type(x)}, got {tensor_type(w)}")
    if bias is not None:
        expect_type("bias", bias, with_shape(x, shape[:1]))
    return with_shape(x, [*batch, shape[0]])


@irdl_op_definition
class LinearOp(ValueOp, DifferentiableInterface, Canonicalized):
    """x · wᵀ + bias over the last dimension of x, as torch.nn.functional.linear."""

    name = "nn.linear"

    x = operand_def(TensorType)
    w = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    allow_tf32 = prop_def(BoolAttr, default_value=bool_attr(False))

    def __init__(self, x: Value, w: Value, bias: Value | None = None, *, allow_tf32: bool = False):
        super().__init__(
            operands=[x, w, bias],
            properties={"allow_tf32": bool_attr(allow_tf32)},
            result_types=[linear_type(x, w, bias)],
        )

    def inferred_type(self) -> AnyTensor:
        if is_true(self.allow_tf32):
            expect_tf32_allowed(self.x)
        return linear_type(self.x, self.w, self.bias)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        """The gradients as one 2-D product each: leading dimensions are folded into rows first."""
        x = as_rows(builder, self.x)
        g = as_rows(builder, cotangents[0])
        product = partial(MatmulOp, allow_tf32=is_true(self.allow_tf32))
        dx = builder.insert(product(g, self.w)).result
        if shape_of(dx) != shape_of(self.x):
            dx = builder.insert(ReshapeOp(dx, shape_of(self.x))).result
        dw = builder.insert(product(g, x, trans_a=True)).result
        if self.bias is None:
            return [dx, dw]
        return [dx, dw, builder.insert(SumOp(g, [0])).result]


def as_rows(builder: Builder, value: SSAValue) -> SSAValue:
    """[B.., K] as the matrix [prod(B), K]."""
    *batch, k = shape_of(value)
    return value if len(batch) == 1 else builder.insert(ReshapeOp(value, [math.prod(batch), k])).result
