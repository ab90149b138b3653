"""A matrix product around an epilogue: the text of its kernel, and how it is launched.

The device code is that of the prebuilt kernels (`csrc/kernels/gemm/device`), which the compiled module has as text. It computes
`z[i, j]`, the sum over `l` of `op(a)[i, l] op(b)[l, j]`, for each member of a batch. A struct of CUDA C++ that the caller prints
defines the use of z:

    struct Epilogue {
      ...
      template <int W>
      __device__ __forceinline__ void operator()(const aicf::gemm::Member& member, const float (&z)[W],
                                                 long long row, long long column) const;
    };

It is called once for each element, with the sums (f64: `double`) of W neighbours of a row, the first of them in a
`column` that W divides. `member.outer` and `member.inner` are the product's place in the two levels of the batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from aicf_mlir import _C
from aicf_mlir.codegen.cuda.access import ACCESS, size_of
from aicf_mlir.codegen.cuda.dependency import READ_AHEAD, WAIT
from aicf_mlir.ir.registry import capability

LARGEST_GRID = (1 << 31) - 1
"""The most blocks; the blocks of a smaller grid take several tiles each."""
NO_TOTALS = "aicf::gemm::NoTotals{}"


@dataclass(frozen=True)
class Matrix:
    """The layout of an operand's matrices: row-major, in elements."""

    transposed: bool
    """True if the matrix in memory, by rows, is [k, m] for a or [n, k] for b."""
    leading: int
    """The distance from row to row."""
    outer: int = 0
    """The distance from member to member of the batch, along its outer level."""
    inner: int = 0
    alignment: int = 256
    """Bytes that divide the address of the first element, a power of two."""


@dataclass(frozen=True)
class ProductProblem:
    """The inputs that determine the code of a product, except for its epilogue."""

    target: str
    """A compute capability, such as "sm_90"."""
    element: str
    """The element type of a and b: "f16", "bf16", "f32" or "f64"."""
    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    batch: int = 1
    """Members, of both levels."""
    inner_batch: int = 1
    """Members of the inner level, which divides `batch`."""
    allow_tf32: bool = False
    """For f32: True if a and b are rounded to TF32 on a target with tensor cores for it."""


def tile_of(problem: ProductProblem) -> _C.ProductTile:
    """The tile for this product, which knows its k: threads, bytes of shared memory, the most neighbours.

    SelectionError if there is no product of the element type for the target.
    """
    sm = capability(problem.target)
    sizes = problem.m, problem.n, problem.batch
    flags = problem.a.transposed, problem.b.transposed, problem.allow_tf32
    return _C.product_tile(problem.element, sm, *sizes, *flags, k=problem.k)


def is_small_product(tile: _C.ProductTile) -> bool:
    """True if a tile is one of those for small results, which take the number of a block in a part of the grid."""
    return tile["header"].endswith("panels.cuh")


def blocks_of(problem: ProductProblem, tile: _C.ProductTile, totals: bool = False) -> int:
    """Blocks of a launch, a tile each; with `totals`, sums of op(a) along k are wanted even where n is 0."""
    across = max(-(-problem.n // tile["columns"]), 1 if totals else 0)
    return min(-(-problem.m // tile["rows"]) * across * problem.batch, LARGEST_GRID)


def neighbours_of(matrix: Matrix, element: str) -> int:
    """The number of elements of an operand that are read at once: it divides the address, rows and members, up to 16 bytes."""
    size = size_of(element)
    count = ACCESS // size
    while count > 1 and (
        matrix.alignment % (count * size)
        or any(step % count for step in (matrix.leading, matrix.outer, matrix.inner))
    ):
        count //= 2
    return count


@cache
def header_text(*paths: str) -> str:
    """The headers of the device code, one line apart, each after the headers that it includes; a shared header appears once."""
    texts, seen = _C.cuda_headers(), set[str]()

    def expand(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = texts[name].replace("#pragma once\n", "")
        return re.sub(r'^#include "(.+)"\n', lambda found: expand(found[1]), text, flags=re.MULTILINE)

    return "\n".join(map(expand, paths))


@dataclass(frozen=True)
class Prefetch:
    """The reads of a small product before the wait: its operands, and the `fetch_ahead` of its epilogue."""

    a: bool = False
    b: bool = False
    epilogue: bool = False

    def __bool__(self) -> bool:
        return self.a or self.b or self.epilogue

    def text(self) -> str:
        """The text of the struct, with the wait."""
        names = {"kA": self.a, "kB": self.b, "kEpilogue": self.epilogue, "kAny": bool(self)}
        flags = ", ".join(f"{name} = {str(value).lower()}" for name, value in names.items())
        return f"""\
struct Ahead {{
  static constexpr bool {flags};
  const long long* predicate;
  __device__ __forceinline__ bool wait() const {{
    {WAIT}
    return predicate == nullptr || *predicate == 0;
  }}
}};
"""


NOTHING_AHEAD = Prefetch()


def product_text(
    problem: ProductProblem,
    tile: _C.ProductTile,
    function: str,
    parameters: Sequence[str],
    declarations: str,
    epilogue: str,
    neighbours: int,
    *,
    a: str = "a0",
    b: str = "a1",
    totals: str = NO_TOTALS,
    ahead: Prefetch = NOTHING_AHEAD,
) -> str:
    """The text of a kernel `function` that computes the product, without the pieces that `declarations` needs.

    `parameters` are declarations in C++, of `predicate` among them. `declarations` is text before the kernel, the struct of the
    epilogue. `a`, `b`, `epilogue` and `totals` are expressions on the parameters: `a` and `b` are addresses of the matrices, of
    any pointer type, and `epilogue` is the functor above. `totals` is one with `bool wanted() const` and
    `void operator()(const aicf::gemm::Member&, long long row, float total) const` for the sums of op(a) along k. `ahead` is for
    small products, with operands whose `neighbours_of` are 16 bytes.
    W is `neighbours`, a power of two up to that of the tile, which must divide n.

    Launch it with the threads and the shared bytes of `tile`, and any number of blocks, best `blocks_of`. The tiles of
    32x32 and more on tensor cores give the same bits; those of small results divide k among warps and do not.
    """
    p, element = problem, problem.element
    if p.n % neighbours or neighbours > tile["neighbours"]:
        raise ValueError(
            f"an epilogue of {neighbours} neighbours for {p.n} columns, of {tile['neighbours']} at most"
        )
    flags = (str(matrix.transposed).lower() for matrix in (p.a, p.b))
    widths = (neighbours_of(p.a, element), neighbours_of(p.b, element), neighbours)
    # Single elements of 16 bits go through registers on their way to shared memory; of TF32 pairs have twice the addresses.
    few = ACCESS if tile["format"] == "TF32" else 4
    resident = 1 if min(widths[:2]) * size_of(element) < few else tile["resident"]
    arguments = ", ".join(
        (f"aicf::gemm::{tile['format']}", f"aicf::gemm::{tile['shape']}", *flags, *map(str, widths))
    )
    strides = (f"{{{matrix.leading}, {matrix.outer}, {matrix.inner}}}" for matrix in (p.a, p.b))
    values = ", ".join((*map(str, (p.batch, p.inner_batch, p.m, p.n, p.k)), *strides))
    signature = ",\n    ".join(parameters)
    blocks = ", {blockIdx.x, gridDim.x}" if is_small_product(tile) else ""
    begin = (
        f"  {READ_AHEAD}" if ahead else f"  {WAIT}\n  if (predicate != nullptr && *predicate != 0) return;"
    )
    return f"""\
{header_text(tile["header"])}
{declarations}{ahead.text() if ahead else ""}
extern "C" __global__ void __launch_bounds__({tile["threads"]}, {resident}) {function}(
    {signature}) {{
{begin}
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr aicf::gemm::Problem problem = {{{values}}};
  aicf::gemm::{tile["product"]}<{arguments}>::run(
      problem, {a}, {b}, {epilogue}, {totals}, shared{blocks}{", Ahead{predicate}" if ahead else ""});
}}
"""
