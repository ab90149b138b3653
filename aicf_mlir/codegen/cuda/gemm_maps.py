"""A gemm_map: the product's device code around an epilogue that is printed from the body."""

from __future__ import annotations

from collections.abc import Sequence

from aicf_mlir.codegen.cuda.access import Place, fetch, find, integer, pointer, reach, varying, width
from aicf_mlir.codegen.cuda.maps import compute
from aicf_mlir.codegen.cuda.products import Matrix, ProductProblem, blocks_of, product_text, tile_of
from aicf_mlir.codegen.cuda.scalars import STORED, TYPES
from aicf_mlir.codegen.cuda.text import Text
from aicf_mlir.codegen.kernel import Axis, Code, Kernel, Phase, elements, strides_along
from aicf_mlir.codegen.product import Product
from aicf_mlir.ir.body import is_table


def code(kernel: Kernel) -> Code:
    """The text of a gemm_map and its one launch."""
    product, problem = _product(kernel), _problem(kernel)
    tile = tile_of(problem)
    axes = [Axis((dim,), size, tuple(strides_along(kernel, dim))) for dim, size in enumerate(kernel.domain)]
    neighbours = min(width(kernel, axes, len(axes) - 1, varying(kernel, axes)), tile["neighbours"])
    while problem.n % neighbours:  # a map of one row may leave a rest; here nothing takes it
        neighbours //= 2
    given = [STORED[product.a.element], STORED[product.b.element]]
    others = [f"{type_} {name}" for type_, name in _members(kernel)]
    parameters = [
        *(f"const {type_}* {name}" for type_, name in zip(given, ("left", "right"), strict=True)),
        *others,
        "void* workspace",
        "const long long* unless",
    ]
    text = product_text(
        problem,
        tile,
        kernel.id,
        parameters,
        _epilogue(kernel, axes, neighbours),
        f"Epilogue{{{', '.join(name for _, name in _members(kernel))}}}",
        neighbours,
        a="left",
        b="right",
    )
    blocks = blocks_of(problem, tile) if elements(kernel.domain) else 0
    return Code(text, (Phase(kernel.id, blocks, threads=tile["threads"], shared=tile["shared"]),))


def _product(kernel: Kernel) -> Product:
    assert kernel.product is not None
    return kernel.product


def _problem(kernel: Kernel) -> ProductProblem:
    product = _product(kernel)
    layout = product.layout
    return ProductProblem(
        kernel.target,
        product.a.element,
        layout.m,
        layout.n,
        layout.k,
        Matrix(layout.trans_a, *layout.a, product.a.alignment),
        Matrix(layout.trans_b, *layout.b, product.b.alignment),
        layout.batch,
        layout.inner_batch,
        product.allow_tf32,
    )


def _members(kernel: Kernel) -> list[tuple[str, str]]:
    """(type, name) of the addresses of all operands but the product, and of the results."""
    found = [
        (f"const {STORED[tensor.element]}*", f"a{number}")
        for number, tensor in enumerate(kernel.operands)
        if number
    ]
    return found + [
        (f"{STORED[tensor.element]}*", pointer(kernel, len(kernel.operands) + number))
        for number, tensor in enumerate(kernel.results)
    ]


def _epilogue(kernel: Kernel, axes: Sequence[Axis], neighbours: int) -> str:
    """The struct that computes the body of `neighbours` elements of a row, and writes the results."""
    text, layout = Text(), _product(kernel).layout
    kind = integer(max(reach(axes), elements(kernel.domain)))
    with text.block("struct Epilogue", "};"):
        text.add(*(f"{type_} {name};" for type_, name in _members(kernel)))
        sums = TYPES[kernel.operands[0].element]
        head = (
            "__device__ __forceinline__ void operator()(const aicf::gemm::Member& member,"
            f" const {sums} (&z)[{neighbours}], long long row, long long column) const"
        )
        with text.block(head):
            place = Place(tuple(axes[-2:]), ("i", "c"))
            if len(axes) > 2:
                text.add(
                    "const unsigned long long product = static_cast<unsigned long long>"
                    f"(member.outer * {layout.inner_batch}ll + member.inner);"
                )
                outer = find(text, axes[:-2], "product", "b", kind)
                place = Place(tuple(axes), (*outer.names, "i", "c"))
            text.add(f"const {kind} i = static_cast<{kind}>(row), c = static_cast<{kind}>(column);")
            text.add("constexpr int u = 0;")
            for number, tensor in enumerate(kernel.operands):
                if number and not is_table(kernel.body.args[number]):
                    count = neighbours if axes[-1].strides[number] else 1
                    text.add(f"Vec<{STORED[tensor.element]}, {count}> x{number}[1];")
                    fetch(text, kernel, place, number, neighbours, f"x{number}[u]")
            compute(text, kernel, place, neighbours, given={0: "z[j]"})
    return str(text)
