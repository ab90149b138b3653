"""Layouts as arithmetic on positions: each claim against the positions written out."""

from __future__ import annotations

import random

import numpy as np
import pytest
from xdsl.dialects.builtin import MemRefType, NoneAttr, StridedLayoutAttr, TensorType, f32
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.interpreters.numerics import places
from aicf_mlir.ir import layouts
from aicf_mlir.ir.layouts import Layout, WrittenLayouts, disjoint, layout_of, with_layout


def positions(layout: Layout) -> np.ndarray:
    """Where each element lies."""
    return places(np.arange(max(layout.end, 1)), layout) if layout.count else np.empty(layout.shape, int)


def random_layout(choose: random.Random, shape: list[int] | None = None) -> Layout:
    """A part of a tensor whose dimensions are in any order, with gaps now and then."""
    sizes = [choose.choice([1, 2, 3, 4, 6]) for _ in range(choose.randint(0, 4))] if shape is None else shape
    order = list(range(len(sizes)))
    choose.shuffle(order)
    strides = [0] * len(sizes)
    step = choose.choice([1, 1, 2])
    for d in order:
        strides[d] = step
        step *= sizes[d] * choose.choice([1, 1, 1, 2])
    return Layout(tuple(sizes), tuple(strides), choose.choice([0, 0, 1, 7]))


def random_part(choose: random.Random, count: int) -> tuple[list[int], Layout]:
    """A shape of `count` elements, and a transposed part of a dense tensor of that shape."""
    shape: list[int] = []
    while count > 1:
        shape.append(choose.choice([d for d in range(2, count + 1) if count % d == 0]))
        count //= shape[-1]
    whole = Layout.dense(shape)
    order = choose.sample(range(len(shape)), len(shape))
    sizes, strides, offset = [shape[d] for d in order], [whole.strides[d] for d in order], 0
    if order and choose.random() < 0.5:
        at = choose.randrange(len(order))
        first = choose.randrange(sizes[at])
        sizes[at], offset = choose.randint(first + 1, sizes[at]) - first, first * strides[at]
    return shape, Layout(tuple(sizes), tuple(strides), offset)


@pytest.mark.parametrize("block", (np.arange(24.0)[::3], np.broadcast_to(7.0, (8,))), ids=("apart", "one"))
def test_a_block_may_be_a_view_itself(block: np.ndarray) -> None:
    """As `reshape(-1)` of what a reduction leaves of a table is, where nothing is rounded."""
    layout = Layout((3, 2), (2, 1), 1)
    np.testing.assert_array_equal(places(block, layout), places(block.copy(), layout))


@pytest.mark.parametrize("seed", range(20))
def test_a_part_of_a_layout_is_where_it_says(seed: int) -> None:
    choose = random.Random(seed)
    found = 0
    for _ in range(200):
        inner = random_layout(choose)
        _, outer = random_part(choose, inner.count)
        both = inner.then(outer)
        if both is not None:
            found += 1
            np.testing.assert_array_equal(
                positions(both), positions(inner).reshape(-1)[positions(outer)], f"{inner} {outer}"
            )
    assert found > 80


def test_what_no_strides_say_has_no_layout() -> None:
    turned = Layout((4, 3), (1, 4))
    assert turned.then(Layout.dense((12,))) is None
    assert turned.then(Layout((3, 4), (1, 3))) == Layout.dense((3, 4))
    assert Layout((4, 3), (5, 1)).then(Layout.dense((6, 2))) is None
    assert Layout((4, 3), (6, 2)).then(Layout.dense((6, 2))) == Layout((6, 2), (4, 2))
    assert Layout((4, 3), (0, 0)).then(Layout.dense((2, 6))) == Layout((2, 6), (0, 0))


@pytest.mark.parametrize("seed", range(20))
def test_a_tensor_lies_where_its_transpose_shall_lie(seed: int) -> None:
    choose = random.Random(seed)
    for _ in range(200):
        shape, outer = random_part(choose, choose.choice([1, 6, 12, 24, 36]))
        place = random_layout(choose, list(outer.shape))
        at = outer.inverse(shape, place)
        if outer.offset or outer.count != Layout.dense(shape).count:
            assert at is None
        else:
            assert at is not None, f"{shape} {outer} {place}"
            np.testing.assert_array_equal(
                positions(at).reshape(-1)[positions(outer)], positions(place), f"{outer} {place}"
            )


def test_repeated_elements_have_no_inverse() -> None:
    assert Layout((3, 4), (0, 1)).inverse((12,), Layout.dense((3, 4))) is None
    assert Layout((4,), (2,)).inverse((4,), Layout.dense((4,))) is None


@pytest.mark.parametrize("seed", range(20))
def test_what_is_called_apart_is_apart(seed: int) -> None:
    choose = random.Random(seed)
    claimed = 0
    for _ in range(300):
        left, right = random_layout(choose), random_layout(choose)
        common = set(positions(left).reshape(-1)) & set(positions(right).reshape(-1))
        if disjoint(left, right):
            claimed += 1
            assert not common, f"{left} {right}"
        if not left.overlaps_itself:
            assert len(set(positions(left).reshape(-1))) == left.count, str(left)
        if left.is_dense:
            np.testing.assert_array_equal(positions(left).reshape(-1), np.arange(left.count))
    assert claimed > 5


def random_slices(choose: random.Random) -> list[Layout]:
    """Of a block of 4 rows of 60 or of 5 x 12 elements: many alike, at random places."""
    kinds = [
        lambda: Layout((4, 3), (60, 1), 3 * choose.randrange(20)),
        lambda: Layout((4, 3), (60, 1), choose.randrange(58)),
        lambda: Layout((2, 3), (60, 1), 120 * choose.randrange(2) + choose.randrange(58)),
        lambda: Layout((4, 5, 2), (60, 12, 1), choose.randrange(11)),
        lambda: Layout((4, 5, 2), (60, 12, 2), choose.randrange(10)),
        lambda: Layout((20, 1, 2), (12, 7, 1), choose.randrange(11)),
    ]
    chosen = choose.sample(kinds, choose.randint(1, 3))
    return [choose.choice(chosen)() for _ in range(choose.randint(1, 20))]


@pytest.mark.parametrize("seed", range(20))
def test_many_places_meet_as_pairs_do(seed: int) -> None:
    choose = random.Random(seed)
    for _ in range(50):
        written, before, filled = WrittenLayouts(), list[Layout](), set[int]()
        for layout in random_slices(choose):
            assert written.meets(layout) == any(not disjoint(layout, other) for other in before), (
                layout,
                before,
            )
            written.add(layout)
            before.append(layout)
            filled |= set(positions(layout).reshape(-1))
            whole = Layout.dense((240,))
            assert len(filled) == 240 if written.have(whole, 240) else True


def test_slices_of_a_size_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def compared(left: Layout, right: Layout) -> bool:
        raise AssertionError(f"{left} and {right} were compared")

    monkeypatch.setattr(layouts, "disjoint", compared)
    written = WrittenLayouts()
    for step in range(64):
        layout = Layout((2, 8), (1280, 1), 20 * step + 4)
        assert not written.meets(layout)
        written.add(layout)
    assert written.meets(Layout((2, 8), (1280, 1), 11)) and not written.meets(Layout((2, 8), (1280, 1), 12))


SLICES = (
    [Layout((2, 16, 4, 8), (1536, 96, 8, 1), first) for first in (0, 32, 64)],
    [Layout((32, 32), (96, 1), first) for first in (0, 32, 64)],
    [Layout((2, 16, 4, 8), (1536, 96, 8, 1), 0), Layout((32, 64), (96, 1), 32)],
    [Layout((2, 4, 16, 8), (1536, 8, 96, 1), 0), Layout((32, 64), (96, 1), 32)],
    [Layout((1024,), (3,), first) for first in (0, 1, 2)],
    [Layout((1024,), (1,), first) for first in (0, 1024, 2048)],
)


@pytest.mark.parametrize("parts", SLICES, ids=str)
def test_slices_fill_their_tensor(parts: list[Layout]) -> None:
    size = 3072
    for i, left in enumerate(parts):
        assert not left.overlaps_itself
        for right in parts[i + 1 :]:
            assert disjoint(left, right)
    written = WrittenLayouts()
    for part in parts:
        assert not written.meets(part)
        assert not written.have(Layout.dense((size,)), size)
        written.add(part)
        assert written.meets(part) and written.have(part, size)
    assert written.have(Layout.dense((size,)), size)


def test_parts_whose_rows_are_folded_differently_are_apart() -> None:
    threes, twos = Layout((3, 3, 3), (837, 3, 1), 0), Layout((3, 3, 2), (837, 2, 1), 9)
    assert threes.merged == Layout((3, 9), (837, 1), 0)
    assert disjoint(threes, twos)
    assert not disjoint(threes, Layout((3, 3, 2), (837, 2, 1), 8))


def test_slices_that_touch_are_not_apart() -> None:
    assert not disjoint(Layout((32, 32), (96, 1), 0), Layout((32, 32), (96, 1), 31))
    assert not disjoint(Layout((32, 33), (96, 1), 64), Layout((32, 32), (96, 1), 0))


WRONG = {
    "strides": StridedLayoutAttr([1]),
    "below": StridedLayoutAttr([-4, 1]),
    "far": StridedLayoutAttr([1 << 61, 1]),
    "dynamic stride": StridedLayoutAttr([None, 1]),
    "dynamic offset": StridedLayoutAttr([4, 1], None),
    "offset": StridedLayoutAttr([4, 1], -1),
}


@pytest.mark.parametrize("written", WRONG.values(), ids=WRONG)
def test_layouts_that_are_refused(written: StridedLayoutAttr) -> None:
    for type_ in (TensorType(f32, [3, 4], written), MemRefType(f32, [3, 4], written)):
        with pytest.raises(VerifyException, match="expected"):
            layout_of(type_)


def test_types_have_layouts() -> None:
    layout = Layout((3, 4), (9, 2), 5)
    assert layout_of(with_layout(TensorType(f32, [1]), layout)) == layout
    assert layout_of(TensorType(f32, [3, 4], NoneAttr())) == Layout.dense((3, 4))
