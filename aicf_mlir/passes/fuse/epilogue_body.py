"""The elements that the launch of a product computes, as a body."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.ir import OpResult

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.kernel_formulas import FORMULAS
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.body import COMPUTE, Body
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.formula import Builder
from aicf_mlir.ir.layouts import shares_block
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.passes.fuse.loops.members import Access, repeated, resolve
from aicf_mlir.passes.fuse.rounding import as_tensor, element_of


@dataclass(frozen=True)
class Epilogue:
    """The epilogue of a launch: a body applied to the product's elements first, then to the operands of the accesses."""

    body: Body
    operands: tuple[Access, ...]
    results: tuple[OpResult, ...]


def epilogue_of(product: KernelOp, bodies: Bodies) -> Epilogue | None:
    """The epilogue of `product`; None if it computes more than its elements, or not in one place."""
    results = tuple(product.results)
    if any(shares_block(result.type) for result in results) or not prod(shape_of(results[0])):
        return None
    type_, domain = COMPUTE[element_name(element_type(product.operands[0]))], shape_of(results[0])
    if isinstance(product, GeneratedOp):
        read = [repeated(resolve(value), domain) for value in product.ins["x"]]
        tables = [Access(value, None) for value in product.ins["table"]]
        return Epilogue(bodies[product.body_symbol], (*read, *tables), results)
    if isinstance(product, kernel.GemmOp):
        return Epilogue(Body((type_,), (), (0,)), (), results)
    if product.outs["bias_grad"]:
        return None
    values = [value for name in ("bias", "saved") for value in product.ins[name]]
    read = [repeated(resolve(value), domain) for value in values]
    return Epilogue(_prebuilt(product, type_), tuple(read), results)


def _prebuilt(product: KernelOp, type_: str) -> Body:
    """The epilogue of a kernel.gemm_epilogue as a body of the product, the bias, and the operand of the gradient."""
    names = [name for name in ("bias", "saved") if product.ins[name]]
    builder = Builder([type_] * (1 + len(names)))
    given = {name: builder.scalar(1 + at) for at, name in enumerate(names)}
    z = builder.scalar(0)
    if "bias" in given:
        z = FORMULAS["bias_add"](z, given["bias"])
    out, seen = z, as_tensor(z, element_of(product.results[0]))
    if (act := product.attrs.get("act", "none")) != "none":
        out = FORMULAS[str(act)](seen)
    elif (act_grad := product.attrs.get("act_grad", "none")) != "none":
        out = FORMULAS[f"{act_grad}_bwd"](seen, given["saved"])
    results = {"out": out, "pre": z}
    return builder.finish(results[name].value for name, values in product.outs.items() for _ in values)
