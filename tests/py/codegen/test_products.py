"""Generated CUDA products: compiled for GPUs without one, and run thread by thread on the host."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cuda_on_host import compiled, exceeded, on_host, placed
from generated_cases import Array, far_off, span, view
from product_cases import (
    TRANSPOSES,
    ProductCase,
    Size,
    batch_cases,
    make,
    other_cases,
    short_sum_cases,
    small_product_cases,
    tile_cases,
)

from aicf_mlir import _C
from aicf_mlir.codegen import nvrtc
from aicf_mlir.codegen.cuda.pieces import with_pieces
from aicf_mlir.codegen.cuda.products import Matrix, blocks_of, header_text, neighbours_of, tile_of
from aicf_mlir.errors import SelectionError
from aicf_mlir.interpreters.numerics import NUMPY_TYPES

ROOT = Path(__file__).parents[3]
SUPPORT = ROOT / "tests/py/support"
INSTRUCTIONS = "kernels/gemm/device/instructions.cuh"
PRODUCTS = [
    f"kernels/gemm/device/{name}.cuh"
    for name in (
        "tensor_cores",
        "tensor_panels",
        "registers",
        "register_groups",
        "register_panels",
        "short_sums",
        "elements",
    )
]


class HostProducts:
    """Products compiled for the host, with what the instructions do written out."""

    def __init__(self, cases: Sequence[ProductCase], folder: Path, small: bool = False):
        """`small`: with sizes and strides in 32 bits, as the prebuilt kernels of small results have them."""
        parts = [
            (SUPPORT / "cuda_on_host.h").read_text(),
            "alignas(128) static unsigned char memory[1 << 18];",
        ]
        parts += [f"namespace in_{case.function} {{\n{self._source(case, small)}\n}}" for case in cases]
        self.library = compiled("\n".join(parts), folder)

    @staticmethod
    def _source(case: ProductCase, small: bool) -> str:
        code = case.code
        text = code.source.replace(header_text(INSTRUCTIONS), (SUPPORT / "products_on_host.h").read_text())
        text = on_host(text)
        assert "asm volatile" not in text
        if small:
            p = case.problem
            sizes = f"{p.m}, {p.n}, {p.k}, {{{p.a.leading}}}, {{{p.b.leading}}}"
            wide = r"constexpr aicf::gemm::Problem problem = {.*};"
            text, count = re.subn(wide, f"constexpr aicf::gemm::SmallProblem problem = {{{sizes}}};", text)
            assert count == 1
        text = re.sub(r"extern __shared__ .* shared\[\];", "unsigned char* shared = memory;", text)
        types = [re.sub(r" ?\w+$", "", parameter) for parameter in case.parameters]
        arguments = ", ".join(f"static_cast<{type_}>(arguments[{n}])" for n, type_ in enumerate(types))
        (phase,) = code.phases
        return text + (
            f'extern "C" int launch_{case.function}(void* const* given, bool backwards, unsigned blocks) {{\n'
            f"  std::memcpy(arguments, given, {len(types)} * sizeof(void*));\n"
            f"  std::memset(memory, 0xff, {phase.shared});\n  aicf::gemm::at_once = backwards;\n"
            f"  return run_grid([] {{ {phase.function}({arguments}); }}, blocks, {phase.threads}, backwards);\n}}"
        )

    def run(
        self, case: ProductCase, backwards: bool = False, skip: bool = False, blocks: int | None = None
    ) -> list[Array]:
        """The results, from memory that was poisoned before."""
        memory = [
            placed(block.view(np.uint8), t.alignment)
            for block, t in zip(case.blocks, case.operands, strict=True)
        ]
        for tensor in case.results:
            poison = np.full(span(tensor) * NUMPY_TYPES[tensor.element].itemsize, 0xFF, np.uint8)
            memory.append(placed(poison, tensor.alignment))
        status = np.array([int(skip)], np.int64)
        addresses = [*(part.ctypes.data for part in memory), 0, status.ctypes.data]
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        launch = getattr(self.library, f"launch_{case.function}")
        count = case.code.phases[0].count if blocks is None else blocks
        assert not launch(pointers, ctypes.c_bool(backwards), ctypes.c_uint(count)), case.name
        assert not any(exceeded(part) for part in memory), case.name
        return [
            part.view(NUMPY_TYPES[tensor.element])
            for part, tensor in zip(memory[len(case.operands) :], case.results, strict=True)
        ]


COMPARED = r"(f16|tf32) (small|medium|tall|large|wide) .* ragged"
"""Cases of tiles on tensor cores that keep the order of k."""
SOME_COMPARED = (
    r"(f16 (small|medium|tall|large|wide) (nn|tt)|tf32 (small|medium|tall|large|wide) (nt|tn)) ragged"
)
"""Half of them: each transposition in one of the types."""


@pytest.fixture(scope="module")
def compared(pytestconfig: pytest.Config) -> str:
    return COMPARED if pytestconfig.getoption("campaign") else SOME_COMPARED


@pytest.fixture(scope="module")
def cases(pytestconfig: pytest.Config, compared: str) -> list[ProductCase]:
    """
    Every way through the device code: bf16 differs from f16 in one instruction, whole tiles in the width of copies.

    In a usual run one of five, and what is compared by bits, since each is compiled; five goes through transpositions,
    tiles and types by turns.
    """
    tiles = [
        case
        for case in tile_cases()
        if re.match(r"(f16|t?f32) .* ragged|(f16|t?f32) (tiny|small)", case.name)
    ]
    all_cases = [
        *tiles,
        *(case for case in other_cases() if re.match(r"bf16|tf32|f32 totals|f64 (batch|totals)", case.name)),
        *small_product_cases(),
        *short_sum_cases(),
        *batch_cases(),
    ]
    if pytestconfig.getoption("campaign"):
        return all_cases
    return [case for n, case in enumerate(all_cases) if n % 5 == 0 or re.match(compared, case.name)]


@pytest.fixture(scope="module")
def host(cases: list[ProductCase], tmp_path_factory: pytest.TempPathFactory) -> HostProducts:
    return HostProducts(cases, tmp_path_factory.mktemp("products"))


@pytest.fixture(scope="module")
def results(cases: list[ProductCase], host: HostProducts) -> list[list[Array]]:
    return [host.run(case) for case in cases]


def test_on_the_host_every_product_is_what_numpy_computes(
    cases: list[ProductCase], results: list[list[Array]]
) -> None:
    wrong: list[str] = []
    for case, found in zip(cases, results, strict=True):
        for number, (tensor, block, want) in enumerate(zip(case.results, found, case.expected, strict=True)):
            if why := far_off(view(block, tensor), want, tensor.element):
                wrong.append(f"{case.name} result {number}: {why}")
            gaps = np.ones(block.shape, np.bool_)
            view(gaps, tensor)[...] = False
            if (block[gaps].view(np.uint8) != 0xFF).any():
                wrong.append(f"{case.name} result {number}: wrote between rows")
    assert not wrong, "\n".join(wrong)


def test_on_the_host_neither_the_order_of_threads_nor_the_number_of_blocks_matters(
    cases: list[ProductCase], host: HostProducts, results: list[list[Array]]
) -> None:
    for case, forwards in list(zip(cases, results, strict=True))[1::3]:
        want = [block.tobytes() for block in forwards]  # and backwards copies are done as they start
        assert want == [block.tobytes() for block in host.run(case, backwards=True)], case.name
        few = 2 if case.code.phases[0].count else 0
        assert want == [block.tobytes() for block in host.run(case, blocks=few)], case.name


def test_on_the_host_a_column_of_numbers_that_cancel_each_other_is_zero(tmp_path: Path) -> None:
    """In f64, where three times a number of f32 is exact."""
    case = make("column", "f32", (40, 1, 384), (True, False))
    rng = np.random.default_rng(0)
    signs = rng.permutation(np.repeat([-1, 0, 1], 128))
    view(case.blocks[0], case.operands[0])[...] = signs[:, None] * rng.standard_normal(40).astype(np.float32)
    view(case.blocks[1], case.operands[1])[...] = 1
    sums = HostProducts([case], tmp_path).run(case)[1]
    assert (view(sums, case.results[1]) == 0).all()


def test_on_the_host_nothing_happens_where_the_status_says_so(
    cases: list[ProductCase], host: HostProducts
) -> None:
    for case in cases[::5]:
        assert all((block.view(np.uint8) == 0xFF).all() for block in host.run(case, skip=True)), case.name


def test_on_the_host_all_tiles_on_tensor_cores_that_keep_the_order_of_k_give_the_same_bits(
    cases: list[ProductCase], results: list[list[Array]], compared: str
) -> None:
    """All but those of small results."""
    pairs = 0
    by_name = {case.name: found for case, found in zip(cases, results, strict=True)}
    for name in by_name:
        if not re.match(compared, name) or "small" not in name:
            continue
        for size in ("medium", "tall", "large", "wide"):
            other = by_name[name.replace("small", size)]
            assert [a.tobytes() for a in by_name[name]] == [b.tobytes() for b in other], (name, size)
            pairs += 1
    assert pairs == 4 * len(TRANSPOSES) * (2 if compared == COMPARED else 1)


def test_on_the_host_sizes_in_32_bits_give_the_same_bits(
    cases: list[ProductCase], results: list[list[Array]], tmp_path: Path
) -> None:
    pairs = [
        (case, found)
        for case, found in zip(cases, results, strict=True)
        if "Panel" in case.tile["shape"] and case.problem.batch == 1 and re.search("panels|tiny|k", case.name)
    ]
    assert len(pairs) > 10
    small = HostProducts([case for case, _ in pairs], tmp_path, small=True)
    for case, found in pairs:
        assert [a.tobytes() for a in small.run(case)] == [b.tobytes() for b in found], case.name


def test_text_is_deterministic_and_needs_no_pieces_of_its_own() -> None:
    for one, other in zip(tile_cases(), tile_cases(), strict=True):
        assert one.code == other.code
    for header in PRODUCTS:
        text = header_text(header)
        assert with_pieces(text) == text
        assert "#include" not in text


def test_the_module_has_the_headers_as_they_are() -> None:
    headers = {
        path.relative_to(ROOT / "csrc").as_posix(): path.read_text()
        for path in (ROOT / "csrc" / "kernels").glob("*/device/*")
    }
    assert _C.cuda_headers() == headers
    assert {INSTRUCTIONS, *PRODUCTS} <= headers.keys()


@pytest.mark.parametrize(
    ("element", "sizes", "shape"),
    [
        ("bf16", (256, 256, 200), "TensorPanel16"),
        ("bf16", (384, 352, 8), "Tensor32"),
        ("bf16", (768, 704, 8), "Tensor64"),
        ("f16", (1024, 1024, 8), "Tensor128x64"),
        ("f16", (2048, 64, 8), "Tensor32"),
        ("bf16", (262144, 64, 8), "Tensor128x64"),
        ("bf16", (262144, 65, 8), "Tensor128"),
        ("bf16", (64, 65536, 8), "Tensor64"),
        ("f16", (1536, 1408, 8), "Tensor128"),
        ("bf16", (2048, 2048, 8), "Tensor128x256"),
        ("tf32", (256, 256, 200), "TF32TensorPanel16"),
        ("tf32", (256, 256, 8), "TF32TensorPanel16x32"),
        ("tf32", (384, 352, 8), "TF32Tensor32"),
        ("tf32", (768, 704, 8), "TF32Tensor64"),
        ("tf32", (1024, 1024, 8), "TF32Tensor128x64"),
        ("tf32", (1536, 1408, 8), "TF32Tensor128"),
        ("tf32", (2048, 2048, 8), "TF32Tensor128x256"),
        ("f32", (256, 1, 200), "RegisterPanel16"),
        ("f32", (256, 256, 200), "RegisterPanel16"),
        ("f32", (64, 256, 200), "RegisterPanel16"),
        ("f32", (256, 256, 8), "RegisterPanel16x32"),
        ("f32", (352, 384, 8), "Register32"),
        ("f32", (512, 511, 8), "RegisterGroup64x32"),
        ("f32", (768, 768, 200), "RegisterGroup64x32"),
        ("f32", (512, 1024, 200), "RegisterGroup64"),
        ("f32", (1024, 1024, 17), "RegisterGroup128x64"),
        ("f32", (2048, 2048, 200), "RegisterGroup128x64"),
        ("f32", (1024, 1024, 16), "ShortSums"),
        ("f32", (8192, 64, 1), "ShortSums"),
        ("f32", (8192, 63, 8), "RegisterGroup64x32"),
        ("f64", (512, 512, 8), "Element16"),
    ],
)
def test_a_product_has_the_tile_of_its_size(element: str, sizes: tuple[int, int, int], shape: str) -> None:
    case = make("tile", element, sizes, (False, False))
    assert (tile_of(case.problem)["shape"], case.tile["shape"]) == (shape, shape)
    rows, columns = case.tile["rows"], case.tile["columns"]
    assert blocks_of(case.problem, case.tile) == -(-sizes[0] // rows) * -(-sizes[1] // columns)


@pytest.mark.parametrize(("k", "shape"), [(64, "RegisterGroup64x32"), (65, "RegisterGroup64")])
def test_short_sums_have_two_tiles_at_once(k: int, shape: str) -> None:
    assert tile_of(make("tile", "f32", (8192, 64, k), (False, False)).problem)["shape"] == shape


@pytest.mark.parametrize(
    ("k", "batch", "trans_b", "resident"),
    [(64, 265, False, 4), (64, 265, True, 3), (65, 265, False, 1), (64, 264, False, 1)],
)
def test_of_many_short_sums_a_multiprocessor_has_several_small_tiles(
    k: int, batch: int, trans_b: bool, resident: int
) -> None:
    tile = tile_of(make("tile", "f32", (27, 27, k), (False, trans_b), batch=(batch, 1)).problem)
    assert (tile["shape"], tile["resident"]) == ("Register32", resident)


def test_blocks_of_nothing() -> None:
    problem = make("empty", "f32", (8, 8, 8), (False, False), batch=(2, 3)).problem
    tile = tile_of(problem)
    assert blocks_of(problem, tile) == 6
    assert blocks_of(replace(problem, batch=0), tile) == blocks_of(replace(problem, m=0), tile, True) == 0
    assert (blocks_of(replace(problem, n=0), tile), blocks_of(replace(problem, n=0), tile, True)) == (0, 6)
    assert blocks_of(replace(problem, batch=1 << 40), tile) == (1 << 31) - 1
    # Rows that 32 bits do not count.
    for element, shape in (("bf16", "Tensor128x64"), ("f32", "RegisterGroup64x32")):
        assert tile_of(replace(problem, element=element, m=1 << 31, n=0))["shape"] == shape


@pytest.mark.parametrize(
    ("matrix", "half", "double"),
    [
        (Matrix(False, 64), 8, 2),
        (Matrix(False, 64, 64 * 9, 64 * 3), 8, 2),
        (Matrix(True, 64, alignment=8), 4, 1),
        (Matrix(False, 66), 2, 2),
        (Matrix(False, 64, 0, 4), 4, 2),
        (Matrix(False, 64, 1), 1, 1),
    ],
)
def test_as_much_is_read_at_once_as_alignment_allows(matrix: Matrix, half: int, double: int) -> None:
    assert (neighbours_of(matrix, "bf16"), neighbours_of(matrix, "f64")) == (half, double)


def test_where_there_is_no_product_that_is_said() -> None:
    problem = make("x", "bf16", (8, 8, 8), (False, False)).problem
    with pytest.raises(SelectionError, match="there is no CUDA product of bf16 for sm_75"):
        tile_of(replace(problem, target="sm_75"))
    with pytest.raises(SelectionError, match="there is no CUDA product of i64 for sm_90"):
        tile_of(replace(problem, element="i64"))
    for allowed in (False, True):  # without tensor cores for it
        own = replace(problem, target="sm_75", element="f32", allow_tf32=allowed)
        assert tile_of(own)["shape"] == "Element16"


@pytest.mark.nvrtc
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_every_product_compiles_without_spills(target: str) -> None:
    chosen = [
        *tile_cases(target),
        *other_cases(target),
        *small_product_cases(target),
        *short_sum_cases(target),
        *batch_cases(target),
    ]

    def report(case: ProductCase) -> str:
        return nvrtc.compile_with_report(case.code.source, target)[1]

    with ThreadPoolExecutor(2) as pool:
        for case, log in zip(chosen, pool.map(report, chosen), strict=True):
            spilled = [int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", log)]
            assert spilled, log
            assert not any(spilled), (case.name, log)


def test_a_size_is_a_tile(cases: list[ProductCase]) -> None:
    """What `size` promises, so that no tile goes untested."""
    shapes: dict[Size, str] = {
        "tiny": "TensorPanel16",
        "few": "TensorPanel16x32",
        "small": "Tensor32",
        "medium": "Tensor64",
        "tall": "Tensor128x64",
        "large": "Tensor128",
        "wide": "Tensor128x256",
    }
    for size, shape in shapes.items():
        assert make("x", "f16", (8, 8, 8), (False, False), size=size).tile["shape"] == shape
        assert make("x", "tf32", (8, 8, 8), (False, False), size=size).tile["shape"] == f"TF32{shape}"
    assert {case.tile["shape"] for case in cases} == {
        *shapes.values(),
        *(f"TF32{shape}" for shape in shapes.values()),
        "RegisterPanel16",
        "RegisterPanel16x8",
        "RegisterPanel16x32",
        "ShortSums",
        "Register32",
        "RegisterGroup64x32",
        "RegisterGroup64",
        "RegisterGroup128x64",
        "Element16",
    }
