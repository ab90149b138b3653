"""A gemm_map: the product's device code around an epilogue that is printed from the body.

A small product reads the body's other operands before the sums. It reads the operands that its launch names as `ahead` before the
wait for the launch before it, in ways that bypass the first-level cache. A larger product of f32 copies them into shared memory
beside the sums, as many as there is room for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from aicf_mlir import _C
from aicf_mlir.codegen.cuda import product_schedules
from aicf_mlir.codegen.cuda.access import (
    ACCESS,
    Coordinates,
    fetch,
    find,
    integer,
    pointer,
    reach,
    size_of,
    varying,
    width,
)
from aicf_mlir.codegen.cuda.dependency import are_many
from aicf_mlir.codegen.cuda.maps import compute
from aicf_mlir.codegen.cuda.product_schedules import texts, tile_by
from aicf_mlir.codegen.cuda.products import (
    Matrix,
    Prefetch,
    ProductProblem,
    blocks_of,
    is_small_product,
    neighbours_of,
    product_text,
)
from aicf_mlir.codegen.cuda.scalars import STORED, TYPES
from aicf_mlir.codegen.cuda.text import Text
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir.body import is_table
from aicf_mlir.ir.chips import chip_of
from aicf_mlir.kernels.kernel import Axis, Code, Kernel, Phase, elements, strides_along
from aicf_mlir.kernels.product import Product

RESERVED = 1 << 10
"""Bytes of shared memory that each block costs besides."""
COPIED = (4, 8, 16)
"""Bytes that an asynchronous copy may move."""


def code(kernel: Kernel) -> Code:
    """The text of a gemm_map and its one launch."""
    product, problem = _product(kernel), _problem(kernel)
    check_ahead(kernel)
    size, axes = tile(kernel), _axes(kernel)
    neighbours = _neighbours(kernel, size, axes)
    early = _reads_early(size, neighbours)
    staged = _staged(kernel, size, axes, neighbours)
    ahead = Prefetch(0 in kernel.ahead, 1 in kernel.ahead, any(number > 1 for number in kernel.ahead))
    given = [STORED[product.a.element], STORED[product.b.element]]
    others = [f"{type_} {name}" for type_, name in _members(kernel)]
    parameters = [
        *(f"const {type_}* {name}" for type_, name in zip(given, ("left", "right"), strict=True)),
        *others,
        "void* workspace",
        "const long long* predicate",
    ]
    text = product_text(
        problem,
        size,
        kernel.symbol,
        parameters,
        _epilogue(kernel, axes, neighbours, early, staged),
        f"Epilogue{{{', '.join(name for _, name in _members(kernel))}}}",
        neighbours,
        a="left",
        b="right",
        ahead=ahead,
    )
    blocks = blocks_of(problem, size) if elements(kernel.domain) else 0
    shared = size["shared"] + (staged.bytes * staged.words if staged else 0)
    return Code(text, (Phase(kernel.symbol, blocks, threads=size["threads"], shared=shared),))


def can_prefetch(kernel: Kernel) -> frozenset[int]:
    """The operands of its launch, by number, that its code can read before the wait."""
    problem, product, size = _problem(kernel), _product(kernel), tile(kernel)
    if not is_small_product(size) or are_many(blocks_of(problem, size), kernel.target):
        return frozenset()
    whole = ACCESS // size_of(product.a.element)
    found = {n for n, of in enumerate((problem.a, problem.b)) if neighbours_of(of, problem.element) == whole}
    if _reads_early(size, _neighbours(kernel, size, _axes(kernel))):
        found |= {number + 1 for number in _read(kernel)}  # a and b are one argument of the body
    return frozenset(found)


def check_ahead(kernel: Kernel) -> None:
    """Raise SelectionError if an operand that shall be read ahead cannot be."""
    if late := sorted(set(kernel.ahead) - can_prefetch(kernel)):
        raise SelectionError(f"operand {late[0]} cannot be read ahead; leave it out of `ahead`")


def _axes(kernel: Kernel) -> list[Axis]:
    return [Axis((dim,), size, tuple(strides_along(kernel, dim))) for dim, size in enumerate(kernel.domain)]


def _neighbours(kernel: Kernel, size: _C.ProductTile, axes: Sequence[Axis]) -> int:
    """The number of elements of a row that the epilogue takes at once."""
    neighbours = min(width(kernel, axes, len(axes) - 1, varying(kernel, axes)), size["neighbours"])
    while kernel.domain[-1] % neighbours:  # a map of one row may leave a rest; here nothing takes it
        neighbours //= 2
    return neighbours


def _reads_early(size: _C.ProductTile, neighbours: int) -> bool:
    """True if the epilogue has its operands before the sums: if a thread has one element, or one word of them."""
    return is_small_product(size) and size["rows"] * size["columns"] // neighbours <= size["threads"]


@dataclass(frozen=True)
class Staged:
    """The operands that a tile has in shared memory before its epilogue."""

    numbers: tuple[int, ...]
    words: int
    """Of a tile: neighbours that the epilogue takes at once."""
    sizes: tuple[int, ...]
    """Bytes of each operand's word."""

    @property
    def each(self) -> Iterable[tuple[int, int]]:
        """The operands, with the bytes of a word."""
        return zip(self.numbers, self.sizes, strict=True)

    @property
    def bytes(self) -> int:
        """Of a word of all."""
        return sum(self.sizes)

    def start(self, number: int) -> int:
        """Where the words of an operand begin, in bytes."""
        return self.words * sum(self.sizes[: self.numbers.index(number)])


def _staged(kernel: Kernel, size: _C.ProductTile, axes: Sequence[Axis], neighbours: int) -> Staged | None:
    """The operands that differ from row to row, in words that a copy moves, as many as there is room for."""
    if size["product"] != "RegisterGroupProduct":
        return None
    words = size["rows"] * size["columns"] // neighbours
    room = chip_of(kernel.target).shared // size["resident"] - RESERVED - size["shared"]
    numbers: list[int] = []
    sizes: list[int] = []
    for number in _read(kernel):
        down, across = axes[-2].strides[number], axes[-1].strides[number]
        bytes_ = (neighbours if across else 1) * size_of(kernel.operands[number].element)
        if down and (across in (0, 1) or neighbours == 1) and bytes_ in COPIED:
            if words * (sum(sizes) + bytes_) > room:
                break
            numbers.append(number)
            sizes.append(bytes_)
    return Staged(tuple(numbers), words, tuple(sizes)) if numbers else None


def _read(kernel: Kernel) -> list[int]:
    """The arguments of the body that are elements of other operands."""
    return [number for number in range(1, len(kernel.operands)) if not is_table(kernel.body.args[number])]


def tile(kernel: Kernel) -> _C.ProductTile:
    """The tile that each of its blocks computes: the one that its schedule names, or that is chosen."""
    return tile_by(_problem(kernel), kernel.schedule)


def text_of(kernel: Kernel) -> str:
    """Its schedule; SelectionError for one with which operands cannot be read ahead that it shall read ahead."""
    check_ahead(kernel)
    return product_schedules.text_of(tile(kernel))


def candidates(kernel: Kernel) -> list[str]:
    """The schedules that it may have, the chosen one first."""
    found = list[str]()
    for text in texts(_problem(kernel)):
        try:
            found.append(text_of(replace(kernel, schedule=text)))
        except SelectionError:
            continue
    return found


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


def _epilogue(
    kernel: Kernel, axes: Sequence[Axis], neighbours: int, early: bool, staged: Staged | None
) -> str:
    """The struct that computes the body of `neighbours` elements of a row, and writes the results.

    `early`: the other operands that it reads are fetched before the product. `staged`: some are in shared memory.
    """
    text = Text()
    kind = integer(max(reach(axes), elements(kernel.domain)))
    read = _read(kernel)
    ahead = [number for number in read if number + 1 in kernel.ahead]
    vectors = [
        f"Vec<{STORED[kernel.operands[number].element]}, {neighbours if axes[-1].strides[number] else 1}> x{number}[1];"
        for number in read
    ]
    early = early and bool(read)
    at = "const aicf::gemm::Member& member"
    sums = f"const {TYPES[kernel.operands[0].element]} (&z)[{neighbours}]"
    place = "long long row, long long column"

    def fetch_all(found: Coordinates, numbers: Sequence[int], of: str = "", how: str = "") -> None:
        for number in numbers:
            fetch(text, kernel, found, number, neighbours, f"{of}x{number}[u]", how=how)

    def fetching(name: str, numbers: Sequence[int], how: str = "") -> None:
        with text.block(f"__device__ __forceinline__ void {name}({at}, {place}, Early& early) const"):
            if numbers:
                fetch_all(_place(text, kernel, axes, kind), numbers, "early.", how)

    with text.block("struct Epilogue", "};"):
        text.add(*(f"{type_} {name};" for type_, name in _members(kernel)))
        if early:
            with text.block("struct Early", "};"):
                text.add(*vectors)
            fetching("fetch", [number for number in read if number not in ahead])
            if ahead:
                fetching("fetch_ahead", ahead, "ahead")
        if staged:
            text.add(f"static constexpr int kStaged = {staged.bytes};")
            given = f"{at}, {place}, int word, unsigned char* staged"
            with text.block(f"__device__ __forceinline__ void stage({given}) const"):
                found = _place(text, kernel, axes, kind)
                for number, bytes_ in staged.each:
                    to = f"staged + {staged.start(number)} + word * {bytes_}"
                    source = f"{pointer(kernel, number)} + ({found.offset(number)})"
                    text.add(f"aicf::gemm::copy_async<{bytes_}>({to}, {source}, {bytes_});")
        given = f"{at}, {sums}, {place}"
        given += (
            ", const Early& early" if early else ", int word, const unsigned char* staged" if staged else ""
        )
        with text.block(f"__device__ __forceinline__ void operator()({given}) const"):
            if early:
                text.add(*(f"const auto& x{number} = early.x{number};" for number in read))
            found = _place(text, kernel, axes, kind)
            if not early:
                text.add(*vectors)
                fetch_all(found, [number for number in read if not staged or number not in staged.numbers])
            if staged:
                for number, bytes_ in staged.each:
                    kept = f"staged + {staged.start(number)} + word * {bytes_}"
                    count = neighbours if axes[-1].strides[number] else 1
                    type_ = f"Vec<{STORED[kernel.operands[number].element]}, {count}>"
                    text.add(f"x{number}[0] = *reinterpret_cast<const {type_}*>({kept});")
            compute(text, kernel, found, neighbours, given={0: "z[j]"})
    return str(text)


def _place(text: Text, kernel: Kernel, axes: Sequence[Axis], kind: str) -> Coordinates:
    """Declare the coordinates of an element of the product."""
    layout = _product(kernel).layout
    place = Coordinates(tuple(axes[-2:]), ("i", "c"))
    if len(axes) > 2:
        text.add(
            "const unsigned long long product = static_cast<unsigned long long>"
            f"(member.outer * {layout.inner_batch}ll + member.inner);"
        )
        outer = find(text, axes[:-2], "product", "b", kind)
        place = Coordinates(tuple(axes), (*outer.names, "i", "c"))
    text.add(f"const {kind} i = static_cast<{kind}>(row), c = static_cast<{kind}>(column);")
    text.add("constexpr int u = 0;")
    return place
