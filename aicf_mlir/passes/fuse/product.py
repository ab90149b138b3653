"""The properties that all launches of a product share, independent of their epilogue."""

from __future__ import annotations

from aicf_mlir.dialects.kernel import GemmOp
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.ir.attributes import AttributeValue


def attributes_of_product(product: KernelOp) -> dict[str, AttributeValue]:
    """The attributes of `product` that a kernel.gemm has too: how it multiplies."""
    names = {row.name for row in GemmOp.schema_of().attrs}
    return {name: value for name, value in product.attrs.items() if name in names}
