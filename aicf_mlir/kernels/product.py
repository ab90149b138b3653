"""The matrix product of a kernel.gemm_map: its operands as matrices in memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from aicf_mlir import _C
from aicf_mlir.ir.body import COMPUTE
from aicf_mlir.kernels.tensor import Tensor


class Steps(NamedTuple):
    """The steps of an operand, in elements: from row to row of a matrix, and from product to product of each level."""

    leading: int
    outer: int
    inner: int


@dataclass(frozen=True)
class ProductLayout:
    """A batch of products of row-major matrices, in two levels as those of [batch, heads, time, size] are."""

    m: int
    n: int
    k: int
    batch: int
    """Products in all."""
    inner_batch: int
    """The products of the inner level."""
    trans_a: bool
    trans_b: bool
    """The transposition of b in memory: an operand that is stored by columns is the transpose of one that is stored by rows."""
    a: Steps
    b: Steps


@dataclass(frozen=True)
class Product:
    """z = op(a) op(b): a of [..., m, k], or transposed, and b of [..., k, n], or transposed."""

    a: Tensor
    b: Tensor
    trans_a: bool
    trans_b: bool
    allow_tf32: bool = False
    """True if its code rounds operands of f32 to TF32 where the target has tensor cores for it."""

    @property
    def element(self) -> str:
        """The element type of z, which the terms are summed in."""
        return COMPUTE[self.a.element]

    @property
    def shape(self) -> tuple[int, ...]:
        """[..., m, n]."""
        m = self.a.shape[-1 if self.trans_a else -2]
        return (*self.a.shape[:-2], m, self.b.shape[-2 if self.trans_b else -1])

    @cached_property
    def layout(self) -> ProductLayout:
        """The layout of its operands; SelectionError for strides that no kernel takes, VerifyError if it is no product."""
        operands: list[_C.TensorType] = [
            (t.element, t.shape, t.strides, t.alignment) for t in (self.a, self.b)
        ]
        attrs: dict[str, _C.Attr] = {"trans_a": self.trans_a, "trans_b": self.trans_b}
        row: dict[str, Any] = _C.product_layout(operands, [(self.a.element, self.shape)], attrs)
        a, b = (Steps(*row.pop(name)) for name in ("a", "b"))
        return ProductLayout(a=a, b=b, **row)
