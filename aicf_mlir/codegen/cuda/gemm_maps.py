"""A gemm_map: the product's device code around an epilogue that is printed from the body."""

from __future__ import annotations

from collections.abc import Sequence

from aicf_mlir import _C
from aicf_mlir.codegen.cuda.access import Place, fetch, find, integer, pointer, reach, varying, width
from aicf_mlir.codegen.cuda.maps import compute
from aicf_mlir.codegen.cuda.products import (
    Matrix,
    ProductProblem,
    blocks_of,
    is_panel,
    product_text,
    tile_of,
)
from aicf_mlir.codegen.cuda.scalars import STORED, TYPES
from aicf_mlir.codegen.cuda.text import Text
from aicf_mlir.codegen.kernel import Axis, Code, Kernel, Phase, elements, strides_along
from aicf_mlir.codegen.product import Product
from aicf_mlir.ir.body import is_table


def code(kernel: Kernel) -> Code:
    """The text of a gemm_map and its one launch."""
    product, problem = _product(kernel), _problem(kernel)
    size = tile_of(problem)
    axes = [Axis((dim,), size, tuple(strides_along(kernel, dim))) for dim, size in enumerate(kernel.domain)]
    neighbours = min(width(kernel, axes, len(axes) - 1, varying(kernel, axes)), size["neighbours"])
    while problem.n % neighbours:  # a map of one row may leave a rest; here nothing takes it
        neighbours //= 2
    each = size["rows"] * size["columns"] // neighbours
    early = is_panel(size) and each <= size["threads"]  # else a thread has several
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
        size,
        kernel.id,
        parameters,
        _epilogue(kernel, axes, neighbours, early),
        f"Epilogue{{{', '.join(name for _, name in _members(kernel))}}}",
        neighbours,
        a="left",
        b="right",
    )
    blocks = blocks_of(problem, size) if elements(kernel.domain) else 0
    return Code(text, (Phase(kernel.id, blocks, threads=size["threads"], shared=size["shared"]),))


def tile(kernel: Kernel) -> _C.ProductTile:
    """What its blocks compute each."""
    return tile_of(_problem(kernel))


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


def _epilogue(kernel: Kernel, axes: Sequence[Axis], neighbours: int, early: bool) -> str:
    """The struct that computes the body of `neighbours` elements of a row, and writes the results.

    `early`: what it reads of other operands is fetched in front of the product.
    """
    text = Text()
    kind = integer(max(reach(axes), elements(kernel.domain)))
    read = [number for number in range(1, len(kernel.operands)) if not is_table(kernel.body.args[number])]
    vectors = [
        f"Vec<{STORED[kernel.operands[number].element]}, {neighbours if axes[-1].strides[number] else 1}> x{number}[1];"
        for number in read
    ]
    early = early and bool(read)
    at = "const aicf::gemm::Member& member"
    sums = f"const {TYPES[kernel.operands[0].element]} (&z)[{neighbours}]"
    place = "long long row, long long column"

    def fetch_all(found: Place, of: str = "") -> None:
        for number in read:
            fetch(text, kernel, found, number, neighbours, f"{of}x{number}[u]")

    with text.block("struct Epilogue", "};"):
        text.add(*(f"{type_} {name};" for type_, name in _members(kernel)))
        if early:
            with text.block("struct Early", "};"):
                text.add(*vectors)
            with text.block(f"__device__ __forceinline__ Early fetch({at}, {place}) const"):
                text.add("Early early;")
                fetch_all(_place(text, kernel, axes, kind), "early.")
                text.add("return early;")
        given = f"{at}, {sums}, {place}" + (", const Early& early" if early else "")
        with text.block(f"__device__ __forceinline__ void operator()({given}) const"):
            if early:
                text.add(*(f"const auto& x{number} = early.x{number};" for number in read))
            found = _place(text, kernel, axes, kind)
            if not early:
                text.add(*vectors)
                fetch_all(found)
            compute(text, kernel, found, neighbours, given={0: "z[j]"})
    return str(text)


def _place(text: Text, kernel: Kernel, axes: Sequence[Axis], kind: str) -> Place:
    """Declare the coordinates of an element of the product."""
    layout = _product(kernel).layout
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
    return place
