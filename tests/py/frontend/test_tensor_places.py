"""A watched tensor: each way to give it another place is seen, by words of torch's objects and by asking torch alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from aicf_mlir import _C
from aicf_mlir.runtime import torch_layout
from aicf_mlir.runtime.torch_layout import CHANGES, LAYOUT, TorchLayout, add_tensors, words_at


@pytest.fixture(params=["words", "torch"])
def reading(request: pytest.FixtureRequest) -> Iterator[str]:
    """How tensors are read: "words" of torch's objects, or by asking "torch" alone."""
    (LAYOUT if request.param == "words" else TorchLayout()).use()
    yield request.param
    LAYOUT.use()


def watch_of(*tensors: torch.Tensor) -> _C.Watch:
    watch = _C.Watch()
    add_tensors(watch, tensors)
    return watch


def square() -> torch.Tensor:
    return torch.zeros(64)[:16].view(4, 4)


def regrow(tensor: torch.Tensor) -> object:
    tensor.untyped_storage().resize_(0)
    between = torch.zeros(64)  # may be where the memory was
    tensor.untyped_storage().resize_(256)
    return between


MORE: dict[str, Callable[[torch.Tensor], object]] = {
    "storage freed and grown again": regrow,
    "shared": lambda t: t.untyped_storage().share_memory_(),
    "unsqueeze_": lambda t: t.unsqueeze_(0),
    "more than five dimensions": lambda t: setattr(t, "data", t.detach().view(2, 2, 1, 1, 1, 4)),
    "another element": lambda t: t.set_(t.untyped_storage(), 1, (4, 4), (4, 1)),
}
EVERY = CHANGES | MORE


@pytest.mark.parametrize("make", ["tensor", "parameter"])
@pytest.mark.parametrize("name", EVERY)
def test_every_change_of_place_is_seen(reading: str, name: str, make: str) -> None:
    tensor = square() if make == "tensor" else torch.nn.Parameter(square(), requires_grad=False)
    watch = watch_of(square(), tensor)
    assert watch.count_words(0) == 2 * (reading == "words")
    for _ in range(3):
        assert watch.changed() == -1
    kept = EVERY[name](tensor)
    assert watch.changed() == watch.changed() == 0
    watch.accept(0)
    assert watch.changed() == -1
    tensor.data = torch.ones(3)
    assert watch.changed() == 0
    del kept


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_another_dtype_at_the_same_offset_is_seen(reading: str, dtype: torch.dtype) -> None:
    tensor = torch.zeros(64).as_strided((4, 4), (4, 1), 4)
    watch = watch_of(tensor)
    before = words_at(tensor._cdata, 21)
    tensor.data = tensor.detach().as_strided((16,), (1,), 0).view(dtype).as_strided((4, 4), (4, 1), 4)
    after = words_at(tensor._cdata, 21)
    shape = LAYOUT.shape // 8
    assert before[shape : shape + 13] == after[shape : shape + 13]
    assert watch.changed() == 0


SAME: dict[str, Callable[[torch.Tensor], object]] = {
    "values": lambda t: t.add_(1),
    "its own data": lambda t: setattr(t, "data", t.detach()),
    "a storage of its own": lambda t: setattr(t, "data", torch.from_numpy(t.detach().numpy())),
    "a gradient": lambda t: setattr(t, "grad", torch.ones_like(t)),
    "requires_grad": lambda t: t.requires_grad_(),
    "there and back": lambda t: (t.t_(), t.t_()),
}


@pytest.mark.parametrize("name", SAME)
def test_what_is_the_same_stays_so(reading: str, name: str) -> None:
    tensor = square()
    watch = watch_of(tensor)
    SAME[name](tensor)
    assert watch.changed() == watch.changed() == -1
    assert watch.count_words(0) == (reading == "words")
    kept = CHANGES[".data = other memory"](tensor)
    assert watch.changed() == 0
    del kept


@pytest.mark.parametrize("rank", range(8))
def test_tensors_of_every_rank(reading: str, rank: int) -> None:
    tensor = torch.zeros(2**rank).view((2,) * rank)
    watch = watch_of(tensor)
    assert watch.count_words(0) == (reading == "words" and rank <= 5)
    assert watch.changed() == -1
    for axis in range(rank):
        tensor.data = torch.zeros(2 ** (rank + 1)).narrow(0, 0, 2**rank).view((2,) * rank)
        watch.accept(0)
        strides = list(tensor.stride())
        strides[axis] += 1
        tensor.as_strided_(tensor.shape, strides)
        assert watch.changed() == 0
        watch.accept(0)
        sizes = [2 - (axis == i) for i in range(rank)]
        tensor.as_strided_(sizes, strides)
        assert watch.changed() == 0
    tensor.data = torch.zeros((3, *tensor.shape))
    assert watch.changed() == 0


class Sub(torch.Tensor):
    """A subclass."""


EMPTY: dict[str, Callable[[], torch.Tensor]] = {
    "no elements": lambda: torch.zeros(0),
    "no rows": lambda: torch.zeros(0, 3),
    "meta": lambda: torch.empty(2, 2, device="meta"),
}


@pytest.mark.parametrize("make", EMPTY)
def test_tensors_without_memory(reading: str, make: str) -> None:
    empty = EMPTY[make]()
    watch = watch_of(empty)
    assert watch.changed() == -1
    empty.data = torch.zeros(7, device=empty.device)
    assert watch.changed() == 0


def test_of_a_subclass_torch_is_asked(reading: str) -> None:
    tensor = square().as_subclass(Sub)
    watch = watch_of(tensor, square())
    assert watch.count_words(0) == (reading == "words")
    assert watch.changed() == -1
    tensor.data = torch.zeros(4, 4)
    assert watch.changed() == 0


def test_of_a_tensor_of_another_kind_torch_is_asked() -> None:
    for tensor in (torch.zeros(3, 3).to_sparse(), torch.zeros(3, 3).to_mkldnn()):
        assert watch_of(tensor).count_words(0) == 0


@pytest.mark.parametrize("index", [0, 1, 7, 99])
def test_the_changed_tensor_is_found_among_many(reading: str, index: int) -> None:
    tensors = [torch.zeros(3, i % 5) for i in range(100)]
    watch = watch_of(*tensors)
    assert watch.changed() == -1
    tensors[index].data = torch.zeros(8)
    assert watch.changed() == 0


def test_requires_grad_is_seen(reading: str) -> None:
    tensors = [torch.nn.Parameter(torch.zeros(3)) for _ in range(50)]
    watch = _C.Watch()
    watch.add_trained(list(tensors))
    for index in (0, 20, 49):
        assert watch.changed() == -1
        tensors[index].requires_grad_(False)
        assert watch.changed() == 0
        tensors[index].requires_grad_(True)
    assert watch.changed() == -1


def test_requires_grad_of_a_result_and_of_a_tensor_that_never_had_it(reading: str) -> None:
    made, never, watch = torch.zeros(3, requires_grad=True) * 2, torch.zeros(3), _C.Watch()
    watch.add_trained([made])
    assert watch.changed() == -1
    made.detach_()
    assert watch.changed() == 0
    watch.clear()
    watch.add_trained([never])
    assert watch.changed() == 0


def test_a_layout_is_used_after_entries_were_added() -> None:
    tensor, watch = torch.zeros(3, requires_grad=True), _C.Watch()
    add_tensors(watch, [tensor])
    watch.add_trained([tensor])
    try:
        TorchLayout().use()
        assert watch.changed() == -1
        tensor.requires_grad_(False)
        assert watch.changed() == 1
    finally:
        LAYOUT.use()


def test_the_layout_of_this_torch_is_found() -> None:
    assert LAYOUT.kind
    assert LAYOUT.requires_grad


WRONG: dict[str, tuple[str, dict[str, int], str]] = {
    "shape": ("_find_places", {"shape": 8}, "kind"),
    "storage": ("_find_places", {"storage": LAYOUT.autograd - LAYOUT.storage}, "kind"),
    "data": ("_find_places", {"data": -LAYOUT.data}, "kind"),
    "requires_grad": (  # how often the storage is used, which is once
        "_find_requires_grad",
        {"autograd": LAYOUT.storage - LAYOUT.autograd, "requires_grad": 8 - LAYOUT.requires_grad},
        "requires_grad",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_layout_that_does_not_see_every_change_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    finder, shift, field = WRONG[name]
    right: Callable[[], dict[str, int]] = getattr(torch_layout, finder)
    wrong = {key: value + shift.get(key, 0) for key, value in right().items()}
    monkeypatch.setattr(torch_layout, finder, lambda: wrong)
    try:
        assert getattr(torch_layout.find(), field) == 0
    finally:
        LAYOUT.use()


@pytest.mark.parametrize("finder", ["_find_places", "_find_requires_grad"])
def test_where_nothing_is_found_torch_is_asked(monkeypatch: pytest.MonkeyPatch, finder: str) -> None:
    def nothing() -> dict[str, Any]:
        raise ValueError("too many values to unpack")

    monkeypatch.setattr(torch_layout, finder, nothing)
    try:
        found = torch_layout.find()
        assert (found.kind == 0, found.requires_grad == 0) == (
            finder == "_find_places",
            finder == "_find_requires_grad",
        )
        watch = watch_of(square())
        assert watch.count_words(0) == (finder != "_find_places")
        assert watch.changed() == -1
    finally:
        LAYOUT.use()
