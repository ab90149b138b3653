"""The weights of attention that dropout keeps: as defined in every kernel and every lane, independent, and torch's results."""

from __future__ import annotations

import ctypes
import itertools
import math
from pathlib import Path
from typing import Any

import children
import numpy as np
import pytest
import torch
from kernel_calls import run, supports
from kernel_cases import FLOATS, Array, Case
from philox import halves_in_tiles, kept_in_tiles

from aicf_mlir import _C
from aicf_mlir.interpreters.numerics import NUMPY_TYPES

ROOT = Path(__file__).parents[3]
SEED, STEP, SITE = (9 << 40) + 5, 3, 4
RANDOM = np.array([SEED, STEP], np.int64)
PRESENT = (0, 1)
"""Attention's optional operands: no mask, random."""


def target_of(device: str) -> str:
    return "cpu" if device == "cpu" else _C.target_of("cuda:0")


def every_result(op: str, case: Case, device: str) -> dict[str, list[Array]]:
    """The results of each kernel of the device that takes the case."""
    names = [v["name"] for v in _C.kernel_variants() if v["op"] == op and v["device"] == device]
    taken = [name for name in names if supports(name, op, case, target_of(device))]
    assert taken
    return {name: run(name, op, case, device) for name in taken}


def eyes(dtype: str, heads: int, rows: int, columns: int) -> Array:
    return np.broadcast_to(np.eye(rows, columns), (1, heads, rows, columns)).astype(NUMPY_TYPES[dtype])


@pytest.mark.parametrize("p", [0.0, 2.0**-17, 0.1, 0.5, 1.0 - 2.0**-16])
@pytest.mark.parametrize(("queries", "keys"), [(300, 7), (70, 64), (130, 128), (33, 250)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_kernel_keeps_the_weights_of_the_definition(
    dtype: str, queries: int, keys: int, p: float, device: str
) -> None:
    """With equal weights, and values that tell the keys apart, the result is the mask."""
    element, heads = NUMPY_TYPES[dtype], 3
    wide = "f64" if dtype == "f64" else "f32"
    given = [np.zeros((1, heads, rows, 8), element) for rows in (queries, keys)]
    outputs = [(dtype, (1, heads, queries, keys)), *[(wide, (1, heads, queries))] * 2]
    attrs = {"causal": False, "scale": 0.125, "p": p, "site": SITE}
    inputs = [*given, eyes(dtype, heads, keys, keys), RANDOM]
    case = Case("mask", inputs, outputs, attrs, ((1, 1, 1, *PRESENT), (1, 1, 1)))
    expected = kept_in_tiles(SEED, STEP, SITE, (1, heads, queries, keys), p)
    assert p > 2.0**-17 or expected.all()
    for name, (out, _, _) in every_result("attention", case, device).items():
        np.testing.assert_array_equal(out != 0, expected != 0, name)
        if dtype == "f64":
            np.testing.assert_allclose(out, expected / (1 - p) / keys, 1e-12)


@pytest.mark.parametrize(("queries", "keys"), [(24, 24), (64, 64), (64, 192), (128, 128), (250, 250)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_gradient_keeps_the_weights_of_its_forward(
    dtype: str, queries: int, keys: int, device: str
) -> None:
    """With operands that tell queries and keys apart, each gradient shows the mask; that of queries where keys are as many.

    Equal weights and values of 1 give a result of about 1, so the score of a weight that is kept has a positive gradient, of
    1 / (1 - p) less the result, and one that is dropped a negative one.
    """
    element, heads, size, p = NUMPY_TYPES[dtype], 2, queries, 0.3
    wide = NUMPY_TYPES["f64" if dtype == "f64" else "f32"]
    query, key = eyes(dtype, heads, queries, size), eyes(dtype, heads, keys, size)
    ones = np.ones((1, heads, keys, size), element)
    rows = [np.full((1, heads, queries), value, wide) for value in (0.0, keys)]
    expected = kept_in_tiles(SEED, STEP, SITE, (1, heads, queries, keys), p) != 0
    out = np.broadcast_to(expected.mean(-1, keepdims=True) / (1 - p), query.shape).astype(element)
    inputs = [query, query, key, ones, out, *rows, RANDOM]
    outputs = [(dtype, each.shape) for each in (query, key, ones)]
    attrs = {"causal": False, "scale": 0.125, "p": p, "site": SITE}
    case = Case("mask", inputs, outputs, attrs, ((*[1] * 7, *PRESENT), (1, 1, 1)))
    for name, (dquery, dkey, dvalue) in every_result("attention_grad", case, device).items():
        np.testing.assert_array_equal(dvalue.swapaxes(-1, -2) != 0, expected, name)
        np.testing.assert_array_equal(dkey.swapaxes(-1, -2) > 0, expected, name)
        if queries == keys:
            np.testing.assert_array_equal(dquery > 0, expected, name)


@pytest.mark.parametrize("causal", [False, True])
def test_results_and_gradients_are_torchs_with_this_mask(causal: bool, device: str) -> None:
    batch, heads, groups, queries, keys, size, p = 2, 4, 2, 150, 290, 24, 0.3
    torch.manual_seed(0)
    shapes = [(batch, heads, queries, size), (batch, groups, keys, size), (batch, groups, keys, size)]
    given = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    left = torch.from_numpy(kept_in_tiles(SEED, STEP, SITE, (batch, heads, queries, keys), p)) / (1 - p)
    query, key, value = given[0], *(each.repeat_interleave(heads // groups, 1) for each in given[1:])
    scores = 0.25 * query @ key.mT
    if causal:
        scores = scores.masked_fill(torch.ones(queries, keys, dtype=torch.bool).triu(1), -torch.inf)
    out = (scores.softmax(-1) * left) @ value
    dout = torch.randn_like(out)
    gradients = torch.autograd.grad(out, given, dout)

    attrs = {"causal": causal, "scale": 0.25, "p": p, "site": SITE}
    operands = [each.detach().numpy() for each in given]
    outputs = [("f64", tuple(out.shape)), *[("f64", (batch, heads, queries))] * 2]
    case = Case("f64", [*operands, RANDOM], outputs, attrs, ((1, 1, 1, *PRESENT), (1, 1, 1)))
    for name, results in every_result("attention", case, device).items():
        np.testing.assert_allclose(results[0], out.detach().numpy(), 1e-11, 1e-12, err_msg=name)
        inputs = [dout.numpy(), *operands, *results, RANDOM]
        outputs = [("f64", each.shape) for each in operands]
        backward = Case("f64", inputs, outputs, attrs, ((*[1] * 7, *PRESENT), (1, 1, 1)))
        for grad, found in every_result("attention_grad", backward, device).items():
            for got, expected in zip(found, gradients, strict=True):
                np.testing.assert_allclose(got, expected.numpy(), 1e-11, 1e-12, err_msg=grad)


class HostLanes:
    """`kept_bits` of csrc/kernels/attention/dropout.cuh, lane by lane."""

    def __init__(self, folder: Path):
        here, library = ROOT / "tests/py/support", folder / "drops.so"
        (folder / "kernels/gemm/device").mkdir(parents=True)
        (folder / "kernels/gemm/device/instructions.cuh").write_text('#include "products_on_host.h"\n')
        flags = [
            "-std=c++17",
            "-w",
            "-Og",
            "-shared",
            "-fPIC",
            "-U_FORTIFY_SOURCE",
            "-include",
            "cuda_runtime.h",
        ]
        flags += [f"-I{where}" for where in (folder, here / "toolkit_on_host", here, ROOT / "csrc")]
        children.run(["g++", *flags, ROOT / "tests/cpp/drops_on_host.cpp", "-o", library], check=True)
        self.library = ctypes.CDLL(str(library))
        self.library.bits_on_host.restype = ctypes.c_bool

    def tile(self, keys_first: bool, tiles: int, sizes: tuple[int, int, int], p: float, *place: int) -> Array:
        """Which elements of 16 rows and 8 `tiles` columns are kept; place: head, row, column."""
        bits = np.zeros(32, np.uint32)
        limit = ctypes.c_uint32(round(p * 2**16) << 16)
        addresses: list[Any] = [np.array(sizes, np.int64), RANDOM, bits]
        sizes_at, random_at, bits_at = (ctypes.c_void_p(each.ctypes.data) for each in addresses)
        at = map(ctypes.c_int64, place)
        site = ctypes.c_uint32(SITE)
        first = (ctypes.c_bool(keys_first), ctypes.c_int(tiles), sizes_at, random_at, site, limit)
        assert self.library.bits_on_host(*first, *at, bits_at)
        kept = np.zeros((16, 8 * tiles), np.bool_)
        for lane, tile, e in itertools.product(range(32), range(tiles), range(4)):
            row, column = lane // 4 + e // 2 * 8, 8 * tile + lane % 4 * 2 + e % 2
            kept[row, column] = bits[lane] >> (4 * tile + e) & 1
        return kept


@pytest.mark.parametrize("keys_first", [False, True])
def test_each_lane_has_the_bits_of_its_elements(keys_first: bool, tmp_path: Path) -> None:
    """Of 16 queries and the keys of some tiles, or of 16 keys and the queries; with tiles that are not full."""
    lanes, (heads, queries, keys), p = HostLanes(tmp_path), (2, 70, 90), 0.4
    whole = kept_in_tiles(SEED, STEP, SITE, (3, heads, queries, keys), p).reshape(-1, queries, keys) != 0
    for head, tiles in itertools.product((0, 5), (1, 2, 4, 8)):
        expected = whole[head].T if keys_first else whole[head]
        rows, columns = expected.shape
        for row, column in itertools.product(range(0, rows, 16), range(0, columns, 8 * tiles)):
            part = expected[row : row + 16, column : column + 8 * tiles]
            found = lanes.tile(keys_first, tiles, (heads, queries, keys), p, head, row, column)
            np.testing.assert_array_equal(found[: part.shape[0], : part.shape[1]], part)


SHAPE = (2, 8, 1024, 512)
DISTANCES = [(0, 1), (1, 0), (1, 1), (0, 2), (0, 8), (8, 0), (8, 8), (8, 1), (0, 9), (0, 16), (16, 0)]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.003])
def test_the_share_is_right_and_neighbours_are_independent(p: float) -> None:
    """Both halves of a word, all places of a draw, heads, sites and steps."""
    kept = kept_in_tiles(SEED, STEP, SITE, SHAPE, p)

    def deviation(part: Array) -> float:
        """Of the share, in standard deviations."""
        return abs(float(part.mean()) - (1 - p)) / math.sqrt(p * (1 - p) / part.size)

    def correlation(one: Array, other: Array) -> float:
        """Times the root of the count: a standard normal number if they are independent."""
        product = float(((one - (1 - p)) * (other - (1 - p))).mean())
        return abs(product) / (p * (1 - p)) * math.sqrt(one.size)

    assert deviation(kept) < 4
    for half in (0, 1):
        assert deviation(kept[..., half::2]) < 4
    assert correlation(kept[..., 0::2], kept[..., 1::2]) < 4
    for down, across in DISTANCES:
        rows, columns = SHAPE[-2] - down, SHAPE[-1] - across
        assert correlation(kept[..., :rows, :columns], kept[..., down:, across:]) < 4, (down, across)
    assert correlation(kept[0], kept[1]) < 4
    assert correlation(kept[:, 0], kept[:, 1]) < 4
    assert correlation(kept, kept_in_tiles(SEED, STEP + 1, SITE, SHAPE, p)) < 4
    assert correlation(kept, kept_in_tiles(SEED, STEP, SITE + 1, SHAPE, p)) < 4


def test_halves_of_words_are_uniform() -> None:
    """The lower and the upper ones: 256 ranges are equally likely, by the sum of squares."""
    halves = halves_in_tiles(SEED, STEP, SITE, SHAPE)
    for half in (0, 1):
        for bits in (0, 8):
            counts = np.bincount(
                (halves[..., half::2] >> np.uint64(bits) & np.uint64(0xFF)).reshape(-1).astype(int)
            )
            usual = halves.size / 2 / 256
            squares = float(((counts - usual) ** 2 / usual).sum())
            assert abs(squares - 255) < 4 * math.sqrt(2 * 255)


def test_no_two_heads_share_a_draw() -> None:
    """With lengths that fill no tile: each pair of neighbours has a word that no other pair has."""
    halves = halves_in_tiles(SEED, STEP, SITE, (2, 3, 17, 36))
    words = halves[..., 0::2] | halves[..., 1::2] << np.uint64(16)
    assert len(np.unique(words)) == words.size
