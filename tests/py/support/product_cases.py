"""Products with a hand-written epilogue: two results, two operands and perhaps the sums of a's rows beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Literal

import numpy as np
from generated_cases import Array, fill, view

from aicf_mlir import _C
from aicf_mlir.codegen.cuda.access import ACCESS, size_of
from aicf_mlir.codegen.cuda.pieces import with_pieces
from aicf_mlir.codegen.cuda.products import (
    NO_TOTALS,
    Matrix,
    ProductProblem,
    blocks_of,
    product_text,
    tile_of,
)
from aicf_mlir.codegen.cuda.scalars import STORED
from aicf_mlir.ir.body import COMPUTE
from aicf_mlir.ir.layouts import dense_strides
from aicf_mlir.kernels.kernel import Code, Phase, Tensor

Size = Literal["tiny", "few", "small", "medium", "broad", "tall", "large", "wide"]
SIZES: dict[Size, tuple[int, int]] = {
    "tiny": (2, 2),
    "few": (160, 160),
    "small": (352, 384),
    "medium": (768, 768),
    "broad": (512, 1024),
    "tall": (1024, 1024),
    "large": (1536, 1536),
    "wide": (2048, 2048),
}
"""Results of such sizes are computed by tiles of 16, 32, 64, 64, 128 x 64, 128 and 128 x 256; in f32 of 16 x 8, 16, 32,
64 x 32, 64, and the rest 128 x 64. Of "few" those of sums of up to 128 terms by panels of 16 x 32, longer ones by panels of 16.
"""
ON_TENSOR_CORES: tuple[Size, ...] = ("tiny", "few", "small", "medium", "tall", "large", "wide")
IN_REGISTERS: tuple[Size, ...] = ("tiny", "few", "small", "medium", "broad", "tall")

TF32 = "tf32"
"""In the place of an element type: f32 that is rounded to TF32 as it is multiplied."""


@dataclass(frozen=True)
class ProductCase:
    """A product. Its operands as blocks of memory, its results and its text are made where they are asked for."""

    name: str
    problem: ProductProblem
    tile: _C.ProductTile
    neighbours: int
    operands: tuple[Tensor, ...]
    """a, b, x of the result's shape, bias."""
    results: tuple[Tensor, ...]
    """elu(z + bias) + x, z in the type of the sums, the sums of a's rows."""
    trans: tuple[bool, bool]
    special: bool

    @cached_property
    def blocks(self) -> list[Array]:
        """The operands' memory."""
        p = self.problem
        rng = np.random.default_rng((p.m, p.n, p.k, *map(int, self.trans)))
        blocks = [fill(rng, tensor) for tensor in self.operands]
        for block in blocks[:2]:
            block *= block.dtype.type(0.25)
        if self.special:
            for block in blocks[:2]:
                places = block[:: max(len(block) // 3, 1)]
                places[:] = np.array([np.nan, np.inf, -np.inf, 0], block.dtype)[: len(places)]
        return blocks

    @cached_property
    def expected(self) -> tuple[Array, ...]:
        """The results in float64, by their shapes."""
        return _expected(
            self.operands, self.blocks, self.trans, len(self.results) > 2, self.problem.allow_tf32
        )

    @property
    def function(self) -> str:
        """Of the text."""
        return "gen_" + "".join(c if c.isalnum() else "_" for c in self.name)

    @cached_property
    def code(self) -> Code:
        """Its text and launch."""
        text = product_text(
            self.problem,
            self.tile,
            self.function,
            self.parameters,
            _epilogue(self),
            "Epilogue{a2, a3, r0, r1}",
            self.neighbours,
            totals="Totals{r2}" if len(self.results) > 2 else NO_TOTALS,
        )
        blocks = blocks_of(self.problem, self.tile, len(self.results) > 2)
        phase = Phase(self.function, blocks, threads=self.tile["threads"], shared=self.tile["shared"])
        return Code(with_pieces(text), (phase,))

    @property
    def parameters(self) -> list[str]:
        """As those of every generated kernel."""
        names = [f"const {STORED[t.element]}* a{n}" for n, t in enumerate(self.operands)]
        names += [f"{STORED[t.element]}* r{n}" for n, t in enumerate(self.results)]
        return [*names, "void* workspace", "const long long* predicate"]


def _epilogue(case: ProductCase) -> str:
    element, compute = STORED[case.problem.element], COMPUTE[case.problem.element]
    wide = STORED[compute]
    narrow = {"f16": "to_half({})", "bf16": "to_bfloat({})"}.get(case.problem.element, "{}")
    exponential = "expm1" if compute == "f64" else "expm1f"

    def at(tensor: Tensor) -> str:
        outer, inner, row, _ = tensor.strides
        return f"member.outer * {outer} + member.inner * {inner} + row * {row} + column"

    x, out, sums = case.operands[2], *case.results[:2]
    return f"""\
struct Epilogue {{
  const {element}* x;
  const {wide}* bias;
  {element}* out;
  {wide}* sums;
  template <int W>
  __device__ __forceinline__ void operator()(const aicf::gemm::Member& member, const {wide} (&z)[W], long long row,
                                             long long column) const {{
    const Vec<{element}, W> others = load<W>(x + ({at(x)}));
    Vec<{element}, W> y;
    Vec<{wide}, W> kept;
#pragma unroll
    for (int j = 0; j < W; ++j) {{
      const {wide} v = z[j] + bias[column + j];
      y.at[j] = {narrow.format(f"(v > 0 ? v : {exponential}(v)) + widen(others.at[j])")};
      kept.at[j] = z[j];
    }}
    store(out + ({at(out)}), y);
    store(sums + ({at(sums)}), kept);
  }}
}};
struct Totals {{
  {wide}* totals;
  __device__ __forceinline__ bool wanted() const {{ return true; }}
  __device__ __forceinline__ void operator()(const aicf::gemm::Member& member, long long row, {wide} total) const {{
    totals[row] = total;
  }}
}};"""


def _fits(tensor: Tensor, count: int) -> bool:
    """Whether each `count` neighbours of a row lie where they move at once, 16 bytes at a time."""
    size = size_of(tensor.element)
    aligned = tensor.alignment % min(ACCESS, count * size) == 0
    return aligned and not any(step % count for step in tensor.strides[:3])


def make(
    name: str,
    element: str,
    sizes: tuple[int, int, int],
    trans: tuple[bool, bool],
    *,
    batch: tuple[int, int] = (1, 1),
    gap: int = 0,
    alignment: int = 256,
    neighbours: int | None = None,
    shared_b: bool = False,
    totals: bool = False,
    size: Size | None = None,
    target: str = "sm_90",
    special: bool = False,
) -> ProductCase:
    """A case on random operands.

    Rows of all matrices lie `gap` elements further apart than they must, members twice that. `size` takes the tile of
    results of such a size; with `shared_b` all members have one b.
    """
    m, n, k = sizes
    allow_tf32 = element == TF32
    element = "f32" if allow_tf32 else element

    def matrix(rows: int, columns: int, of: str = element, repeat: bool = False) -> Tensor:
        pitch = columns + gap
        member = rows * pitch + 2 * gap
        steps = (0, 0) if repeat else (batch[1] * member, member)
        return Tensor(of, (*batch, rows, columns), (*steps, pitch, 1), max(alignment, size_of(of)))

    a, b = (
        matrix(*((k, m) if trans[0] else (m, k))),
        matrix(*((n, k) if trans[1] else (k, n)), repeat=shared_b),
    )
    compute = COMPUTE[element]
    bias = Tensor(compute, (n,), dense_strides((n,)))
    results = [matrix(m, n), matrix(m, n, compute)]
    if totals:
        results.append(Tensor(compute, (m,), (1,)))
    problem = ProductProblem(
        target,
        element,
        m,
        n,
        k,
        *(
            Matrix(t, tensor.strides[2], tensor.strides[0], tensor.strides[1], alignment)
            for t, tensor in zip(trans, (a, b), strict=True)
        ),
        batch=batch[0] * batch[1],
        inner_batch=batch[1],
        allow_tf32=allow_tf32,
    )
    tile = tile_of(replace(problem, m=SIZES[size][0], n=SIZES[size][1]) if size else problem)
    if neighbours is None:
        neighbours = tile["neighbours"]
        while neighbours > 1 and not (n % neighbours == 0 and all(_fits(t, neighbours) for t in results[:2])):
            neighbours //= 2
    operands = (a, b, matrix(m, n), bias)
    return ProductCase(name, problem, tile, neighbours, operands, tuple(results), trans, special)


def rounded_to_tf32(values: Array) -> Array:
    """f32 with 10 bits of the mantissa: to nearest, ties away from zero."""
    scale = np.exp2(np.frexp(np.abs(values.astype(np.float64)))[1] - 11)
    with np.errstate(all="ignore"):
        nearest = np.trunc(np.abs(values) / scale + 0.5) * scale
        return np.where(np.isfinite(values), np.copysign(nearest, values), values)


def _expected(
    operands: tuple[Tensor, ...],
    blocks: list[Array],
    trans: tuple[bool, bool],
    totals: bool,
    allow_tf32: bool,
) -> tuple[Array, ...]:
    wide = [view(block, tensor).astype(np.float64) for block, tensor in zip(blocks, operands, strict=True)]
    a, b = (x.swapaxes(-1, -2) if t else x for x, t in zip(wide, trans, strict=False))
    with np.errstate(all="ignore"):
        z = np.matmul(*map(rounded_to_tf32, (a, b))) if allow_tf32 else np.matmul(a, b)
        v = z + wide[3]
        out = np.where(v > 0, v, np.expm1(v)) + wide[2]
        return (out, z, a[0, 0].sum(-1)) if totals else (out, z)


def bytes_of(element: str) -> int:
    """Of an element in memory."""
    return size_of("f32" if element == TF32 else element)


TRANSPOSES = [(False, False), (False, True), (True, False), (True, True)]


def tile_cases(target: str = "sm_90") -> Iterator[ProductCase]:
    """Every element type, tile and transposition, on ragged sizes: of 16 bytes, and of single elements."""
    rows: list[tuple[str, tuple[Size, ...]]] = [
        ("f16", ON_TENSOR_CORES),
        ("bf16", ON_TENSOR_CORES),
        ("f32", IN_REGISTERS),
        (TF32, ON_TENSOR_CORES),
        ("f64", ("small",)),
    ]
    for element, sizes in rows:
        for size in sizes:
            for number, trans in enumerate(TRANSPOSES):
                flags = "".join("nt"[t] for t in trans)
                yield make(
                    f"{element} {size} {flags}", element, (136, 152, 88), trans, size=size, target=target
                )
                ragged = (131 + number, 45 - number, 67 + 3 * number)
                yield make(
                    f"{element} {size} {flags} ragged", element, ragged, trans, size=size, target=target
                )


def other_cases(target: str = "sm_90") -> Iterator[ProductCase]:
    """Batches of two levels, gaps, little alignment, sums of rows, nothing to sum, NaN and infinity."""
    for element in ("f16", "bf16", "f32", TF32, "f64"):
        case = lambda name, *args, element=element, **kwargs: make(  # noqa: E731
            f"{element} {name}", element, *args, target=target, **kwargs
        )
        yield case("batch", (40, 24, 72), (False, True), batch=(3, 4), gap=8)
        yield case("one b", (33, 17, 19), (False, False), batch=(2, 3), shared_b=True)
        yield case("gap of one", (50, 64, 35), (True, False), batch=(2, 1), gap=1)
        yield case("two neighbours", (34, 66, 38), (False, False), gap=2)
        yield case("little alignment", (48, 64, 32), (False, True), alignment=bytes_of(element))
        yield case("alignment of two", (48, 64, 32), (True, True), alignment=2 * bytes_of(element))
        yield case("narrow epilogue", (48, 64, 32), (False, False), neighbours=1)
        for trans in TRANSPOSES:
            flags = "".join("nt"[t] for t in trans)
            yield case(f"totals {flags}", (70, 40, 100), trans, totals=True)
        yield case("totals alone", (70, 0, 100), (False, False), totals=True)
        if element == "f32":
            for size, trans in zip(IN_REGISTERS[2:], TRANSPOSES, strict=True):
                yield case(f"totals {size}", (70, 40, 100), trans, totals=True, size=size)
                yield case(f"totals {size} alone", (70, 0, 100), trans, totals=True, size=size)
                yield case(f"totals {size} odd", (71, 41, 117), trans, totals=True, size=size)
        yield case("no k", (20, 24, 0), (False, False), batch=(1, 2))
        yield case("one", (1, 1, 1), (False, False))
        yield case("column", (77, 1, 300), (False, True))
        yield case("row", (1, 88, 129), (True, False))
        yield case("special", (37, 41, 53), (False, False), special=True)


def small_product_cases(target: str = "sm_90") -> Iterator[ProductCase]:
    """Small results: around the ends of what a thread, a warp and a block take of k at once, of one panel to seven."""
    rng = np.random.default_rng(9)
    for number, (trans, k) in enumerate(product(TRANSPOSES, (1, 17, 129, 300))):
        yield make(
            f"f32 column {''.join('nt'[t] for t in trans)} {k}",
            "f32",
            (77 - number, 1, k),
            trans,
            totals=number % 2 > 0,
            special=number % 5 == 4,
            target=target,
        )
    for element in ("f16", "f32", TF32):
        for number, k in enumerate((1, 15, 16, 17, 64, 127, 129, 256, 257, 385, 513, 770)):
            m, n = (int(size) for size in rng.integers(1, 40, 2))
            yield make(
                f"{element} panels {k}",
                element,
                (m, n, k),
                TRANSPOSES[int(rng.integers(4))],
                batch=(1, 1) if number % 3 else (1, 2),
                gap=int(rng.integers(3)) * 4 if number % 2 else 0,
                alignment=bytes_of(element) << int(rng.integers(4)),
                totals=number % 3 > 0,
                special=number % 5 == 4,
                target=target,
            )
        for trans in TRANSPOSES:
            flags = "".join("nt"[t] for t in trans)
            yield make(f"{element} panels {flags}", element, (24, 40, 328), trans, totals=True, target=target)
            yield make(
                f"{element} panels of 16 {flags}", element, (24, 40, 328), trans, size="few", target=target
            )
            yield make(
                f"{element} panels of 16 x 32 {flags}",
                element,
                (70, 41, 128),
                trans,
                totals=True,
                size="few",
                target=target,
            )
            odd = (25, 41, 265)  # whose rows end within 16 bytes, and begin at a multiple of them
            yield make(
                f"{element} panels {flags} odd", element, odd, trans, gap=7, totals=True, target=target
            )


def short_sum_cases(target: str = "sm_90") -> Iterator[ProductCase]:
    """Sums of at most 16 terms, as large results have them: ragged ends, and one, two and four neighbours."""
    for number, (trans, k) in enumerate(product(TRANSPOSES, (1, 13, 16))):
        yield make(
            f"f32 short {''.join('nt'[t] for t in trans)} {k}",
            "f32",
            (70 - number, (132, 130, 131, 64)[number % 4], k),
            trans,
            batch=(1, 1) if number % 2 else (2, 2),
            gap=number % 3,
            totals=number % 2 > 0,
            size="tall",
            special=number % 5 == 4,
            target=target,
        )


def batch_cases(target: str = "sm_90") -> Iterator[ProductCase]:
    """Some of a large batch of small products, of which a multiprocessor has several at once."""
    for number, (trans, k) in enumerate(product(TRANSPOSES, (27, 64))):
        case = make(
            f"f32 small batch {''.join('nt'[t] for t in trans)} {k}",
            "f32",
            (*((27, 27), (27, 64), (64, 27), (20, 24))[number % 4], k),
            trans,
            batch=(3, 1),
            size="small",
            target=target,
        )
        yield replace(case, tile=tile_of(replace(case.problem, batch=2048)))


def large_cases(target: str = "sm_90") -> Iterator[ProductCase]:
    """Too much work for the host: tiles as they are chosen, many of them."""
    for element in ("f16", "bf16", "f32", TF32):
        yield make(f"{element} many tiles", element, (1100, 1480, 200), (False, True), target=target)
        yield make(
            f"{element} many members", element, (120, 136, 64), (True, False), batch=(40, 5), target=target
        )
        yield make(f"{element} ragged tiles", element, (523, 617, 211), (False, False), target=target)
