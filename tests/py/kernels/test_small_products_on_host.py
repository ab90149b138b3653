"""The prebuilt products of small results run thread by thread on the host: with sizes in 32 bits, and in 64."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import children
import numpy as np
import pytest
from cuda_on_host import exceeded, placed
from generated_cases import Array

ROOT = Path(__file__).parents[3]
LARGEST = (1 << 31) - 1
Sizes = tuple[int, int, int, int]


class HostProducts:
    """gemm_tiled_16x16 of csrc/kernels/gemm/tiled.cu; an access that is not aligned ends the process."""

    def __init__(self, folder: Path):
        here, library = ROOT / "tests/py/support", folder / "products.so"
        headers = folder / "kernels/gemm"
        (headers / "device").mkdir(parents=True)
        (headers / "device/instructions.cuh").write_text('#include "products_on_host.h"\n')
        text = (ROOT / "csrc/kernels/gemm/prebuilt.cuh").read_text()
        text, count = re.subn(r"extern __shared__ .* shared\[\];", "unsigned char* shared = memory;", text)
        assert count == 2
        memory = "#include <cuda_runtime.h>\nalignas(128) static unsigned char memory[1 << 18];\n"
        (headers / "prebuilt.cuh").write_text(memory + text)
        flags = ["-std=c++17", "-w", "-Og", "-ffp-contract=off", "-shared", "-fPIC", "-U_FORTIFY_SOURCE"]
        flags += ["-fsanitize=alignment,bounds", "-fsanitize-undefined-trap-on-error"]
        flags += ["-include", "cuda_runtime.h"]
        flags += [f"-I{where}" for where in (folder, here / "toolkit_on_host", here, ROOT / "csrc")]
        children.run(["g++", *flags, ROOT / "tests/cpp/products_on_host.cpp", "-o", library], check=True)
        self.library = ctypes.CDLL(str(library))
        self.library.small_on_host.restype = ctypes.c_bool

    def small(self, sizes: Sizes, trans: tuple[bool, bool], leading: tuple[int, ...]) -> bool:
        """Whether sizes and strides are handed over in 32 bits."""
        return self.library.small_on_host(numbers(*sizes), *map(ctypes.c_bool, trans), numbers(*leading))

    def run(
        self,
        sizes: Sizes,
        trans: tuple[bool, bool],
        *,
        saved: bool,
        gap: int,
        alignment: int,
        backwards: bool,
    ) -> tuple[list[Array], list[Array]]:
        """relu(a b + bias) with what it is of, or its gradient; and a's sums. Beside it what numpy computes.

        Rows lie `gap` elements apart, or begin at multiples of eight where it is negative.
        """
        batch, m, n, k = sizes
        rng = np.random.default_rng((*sizes, *trans, saved))
        shapes = [(k, m) if trans[0] else (m, k), (n, k) if trans[1] else (k, n), *[(m, n)] * 3]
        pitches = [columns + gap if gap >= 0 else -(-columns // 8) * 8 for _, columns in shapes]
        blocks = [
            rng.standard_normal((batch, rows, pitch)).astype(np.float32)
            for (rows, _), pitch in zip(shapes, pitches, strict=True)
        ]
        memory = [placed(block.ravel().view(np.uint8), alignment) for block in blocks]
        bias, sums = rng.standard_normal(n).astype(np.float32), np.full(m, np.nan, np.float32)
        given = [part.ctypes.data if part.size else 0 for part in memory]
        given[4 if saved else 2] = 0
        beside = [placed(part.view(np.uint8), alignment) for part in (bias, sums)]
        with_sums = batch == 1 and saved
        ran = self.library.product_on_host(
            numbers(*sizes),
            *map(ctypes.c_bool, trans),
            (ctypes.c_void_p * 5)(*given),
            numbers(*pitches),
            numbers(*(block[0].size for block in blocks)),
            ctypes.c_void_p(None if saved else beside[0].ctypes.data),
            ctypes.c_void_p(beside[1].ctypes.data if with_sums else None),
            ctypes.c_bool(backwards),
        )
        assert ran == 1
        assert not any(exceeded(part) for part in (*memory, *beside))
        found = [
            part.view(np.float32).reshape(block.shape) for part, block in zip(memory, blocks, strict=True)
        ]
        for part, block, (_, columns) in zip(found, blocks, shapes, strict=True):
            assert np.array_equal(part[:, :, columns:], block[:, :, columns:])
        a, b, x = (block[:, :, : shape[1]] for block, shape in zip(blocks[:3], shapes, strict=False))
        a, b = (y.swapaxes(1, 2) if t else y for y, t in zip((a, b), trans, strict=True))
        z = np.matmul(a, b, dtype=np.float64)
        if not saved:
            z = z + bias
            return [found[3][:, :, :n], found[4][:, :, :n]], [np.maximum(z, 0), z]
        want = [np.where(x > 0, z, 0), *([a[0].sum(1, dtype=np.float64)] if with_sums else [])]
        return [found[3][:, :, :n], beside[1].view(np.float32)][: len(want)], want


def numbers(*values: int) -> ctypes.Array[ctypes.c_int64]:
    """As the functions of the library take them."""
    return (ctypes.c_int64 * len(values))(*values)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> HostProducts:
    return HostProducts(tmp_path_factory.mktemp("products"))


@pytest.mark.parametrize("trans", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize(
    ("sizes", "gap", "alignment"),
    [
        ((1, 20, 24, 40), 0, 16),
        ((1, 36, 8, 260), 4, 16),
        ((1, 33, 28, 385), -1, 16),
        ((1, 7, 4, 259), -1, 16),
        ((1, 17, 12, 130), 0, 4),
        ((1, 16, 16, 0), 0, 16),
        ((3, 20, 20, 36), 4, 16),
    ],
)
def test_prebuilt_products_are_what_numpy_computes(
    host: HostProducts, sizes: Sizes, gap: int, alignment: int, trans: tuple[bool, bool]
) -> None:
    for saved in (False, True):
        runs = [
            host.run(sizes, trans, saved=saved, gap=gap, alignment=alignment, backwards=backwards)
            for backwards in (False, True)
        ]
        for found, want in zip(*runs[0], strict=True):
            assert np.allclose(found, want, rtol=1e-5, atol=1e-4)
        assert [x.tobytes() for x in runs[0][0]] == [x.tobytes() for x in runs[1][0]]


@pytest.mark.parametrize(
    ("sizes", "trans", "leading", "small"),
    [
        ((1, 64, 256, 256), (False, True), (256, 256, 256, 256, 256), True),
        ((2, 64, 256, 256), (False, True), (256, 256, 256, 256, 256), False),
        ((1, 0, 0, 0), (False, False), (0, 0, 0, 0, 0), True),
        ((1, 1, 1, 1 << 31), (False, False), (1, 1, 0, 1, 0), False),
        *(
            (
                (1, 64, 64, 64),
                (False, False),
                tuple(there if n == at else 64 for n in range(5)),
                there == most,
            )
            for most in [LARGEST // (64 + 256)]
            for at in range(5)
            for there in (most, most + 1)
        ),
        ((1, 64, 8, 1 << 20), (True, True), (2040, 8, 0, 8, 0), True),
        ((1, 64, 8, 1 << 20), (True, True), (2048, 8, 0, 8, 0), False),
        ((1, 64, 8, 1 << 20), (False, False), (1 << 22, 2040, 0, 8, 0), True),
        ((1, 64, 8, 1 << 20), (False, False), (1 << 22, 2048, 0, 8, 0), False),
    ],
)
def test_sizes_are_in_32_bits_where_all_offsets_fit(
    host: HostProducts, sizes: Sizes, trans: tuple[bool, bool], leading: tuple[int, ...], small: bool
) -> None:
    assert host.small(sizes, trans, leading) == small
