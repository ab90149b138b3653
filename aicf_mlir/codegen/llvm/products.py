"""A matrix product and its epilogue: a call of the product, which calls the epilogue for block after block.

The product is in the memory of a result that can hold it, else in the workspace. The called function decides the size of a block
(csrc/kernels/gemm/cpu_product.h): the block is still in the cache then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from math import prod

from aicf_mlir.codegen.functions import CALLED
from aicf_mlir.codegen.llvm.maps import inner_axis, store_all
from aicf_mlir.codegen.llvm.point import LoopPosition, Point, tensors, varying
from aicf_mlir.codegen.llvm.text import Function, Value, module
from aicf_mlir.codegen.llvm.walk import Walk, lanes_for
from aicf_mlir.ir.body import is_table
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.ir.layouts import dense_strides
from aicf_mlir.kernels.kernel import Axis, Kernel, Phase, Product, Tensor, strides_along

BLOCK = ("batch", "row", "row_end", "column", "column_end")
"""The arguments of an epilogue after the addresses of the launch."""
STEP = 16
"""Columns of a block begin and end at multiples of it, or at the last column; rows too where columns are few."""
FEW_COLUMNS = 32


def product_workspace(kernel: Kernel) -> int:
    """The bytes of the whole product, if no result can hold it."""
    return byte_size(kernel.operands[0].element, kernel.domain) if kernel.holder is None else 0


def product_phases(kernel: Kernel) -> list[Phase]:
    """The one phase of a gemm_map, a call that divides the work itself."""
    return [Phase(f"{kernel.symbol}_0", int(prod(kernel.domain) > 0))]


def product_module(kernel: Kernel, arguments: Sequence[str]) -> str:
    """The text: the epilogue, with these parameters, and the function of the phase."""
    function, epilogue = Function(), f"{kernel.symbol}_epilogue"
    if prod(kernel.domain):
        _write(function, kernel)
    text = module(kernel.symbol, [(epilogue, function)], arguments, BLOCK, "internal")
    sizes = _sizes(kernel)
    product = _product(kernel)
    z = len(arguments) - 2 if kernel.holder is None else 1 + len(kernel.operands) + kernel.holder
    places = {"a": 0, "b": 1, "z": z, "table": len(arguments) - 1}
    loads = [
        line
        for name, place in places.items()
        for line in (
            f"  %at_{name} = getelementptr ptr, ptr %operands, i64 {place}",
            f"  %{name} = load ptr, ptr %at_{name}",
        )
    ]
    entry = CALLED.index(f"product_{product.a.element}")
    lines = [
        f"@{kernel.symbol}_sizes = private constant [{len(sizes)} x i64] [{', '.join(f'i64 {n}' for n in sizes)}]",
        f"define void @{kernel.symbol}_0(ptr %operands, i64 %begin, i64 %end) #0 {{",
        *loads,
        f"  %at_product = getelementptr ptr, ptr %table, i64 {entry}",
        "  %product = load ptr, ptr %at_product",
        f"  call void %product(ptr @{kernel.symbol}_sizes, ptr %a, ptr %b, ptr %z, ptr @{epilogue}, ptr %operands)",
        "  ret void",
        "}",
    ]
    return "\n".join([text.rstrip("\n"), *lines, ""])


def _product(kernel: Kernel) -> Product:
    assert kernel.product is not None
    return kernel.product


def _sizes(kernel: Kernel) -> tuple[int, ...]:
    """The arguments of the called function: the sizes, the steps of a, b and the product, which is dense, and the operands it
    fetches ahead.
    """
    layout = _product(kernel).layout
    m, n, inner = layout.m, layout.n, layout.inner_batch
    sizes = (layout.batch, inner, m, n, layout.k, int(layout.trans_a), int(layout.trans_b))
    beside = _beside(kernel) if layout.batch == 1 else []
    return (*sizes, *layout.a, *layout.b, max(n, 1), inner * m * n, m * n, len(beside), *chain(*beside))


def _beside(kernel: Kernel) -> list[tuple[int, int, int]]:
    """For each operand with contiguous rows: its address among those of the launch, its leading step, an element's bytes."""
    found: list[tuple[int, int, int]] = []
    for number, (type_, tensor) in enumerate(zip(kernel.body.args, kernel.operands, strict=True)):
        if number and not is_table(type_) and tensor.strides[-1] == 1 and tensor.strides[-2]:
            found.append((number + 1, tensor.strides[-2], byte_size(tensor.element, ())))
    return found


def _epilogue(kernel: Kernel) -> Kernel:
    """The body alone: a map of the product, which is in the memory where it is computed."""
    z = kernel.operands[0]
    dense = Tensor(z.element, z.shape, dense_strides(z.shape))
    return replace(kernel, kind="map", operands=(dense, *kernel.operands[1:]), product=None)


def _origin(kernel: Kernel, epilogue: Kernel) -> LoopPosition:
    """The addresses of the epilogue's operands and results, by the launch's arguments."""
    operands = len(kernel.operands)
    given = [f"%a{number + 1}" for number in range(1, len(tensors(epilogue)))]
    z = "%workspace" if kernel.holder is None else f"%a{operands + 1 + kernel.holder}"
    return LoopPosition((z, *given))


def _write(function: Function, kernel: Kernel) -> None:
    """Write the body over one block: line after line, many lanes at a time."""
    epilogue = _epilogue(kernel)
    *outer, rows, columns = (
        Axis((dim,), size, tuple(strides_along(epilogue, dim))) for dim, size in enumerate(epilogue.domain)
    )
    inner = columns
    if columns.size < FEW_COLUMNS:
        inner = inner_axis(epilogue, [rows, columns])
    other = rows if inner is columns else columns
    ranges = {rows.dims: ("%row", "%row_end"), columns.dims: ("%column", "%column_end")}
    varies, results = varying(epilogue, inner), epilogue.body.results
    lanes = lanes_for(epilogue, inner.size)
    at = function.unravel("%batch", epilogue.domain[:-2])
    place = _origin(kernel, epilogue).moved(function, epilogue, outer, at)
    begin, end = ranges[inner.dims]
    middle = begin
    if lanes > STEP:
        steps = function.new(f"sub nuw nsw i64 {end}, {begin}")
        middle = function.add(begin, function.new(f"and i64 {steps}, {-lanes}"))

    def line(index: str, before: list[Value]) -> list[Value]:
        point = Point(function, epilogue, place.moved(function, epilogue, [other], [index]))
        if lanes > STEP:
            wide = Walk(point, inner, varies, results, lanes)

            def vector(first: str, nothing: list[Value]) -> list[Value]:
                wide.at(first, store_all)
                return nothing

            function.loop(begin, middle, lanes, [], vector)
        rest = Walk(point, inner, varies, results, min(lanes, STEP))
        rest.run(middle, end, [], store_all)
        return before

    function.loop(*ranges[other.dims], 1, [], line)
