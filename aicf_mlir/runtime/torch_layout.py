"""The offsets of a tensor's shape, memory and `requires_grad` inside torch's own objects, for
csrc/bindings/torch_layout.h.

Only the minimum size of the objects is assumed, in torch 2.11 to 2.13. Each field is found by a value that occurs once
in the object. It is used only if every way to give a tensor another place is then detected.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from aicf_mlir import _C

_WORD = 8
_TENSOR, _STORAGE, _AUTOGRAD = 22, 7, 20
"""The numbers of words of a TensorImpl, a StorageImpl and an AutogradMeta."""

PLAIN = (torch.Tensor, torch.nn.Parameter)
"""The classes whose tensors are fully described by their TensorImpl. Another class may answer by Python code."""

_handle: Callable[[torch.Tensor], Any] = vars(torch._C)["_aoti"].unsafe_alloc_void_ptr_from_tensor  # pyright: ignore[reportPrivateUsage]
"""Torch's handle of a tensor for its stable C interface, in a capsule."""


@dataclass(frozen=True)
class TorchLayout:
    """Offsets in bytes; see csrc/bindings/torch_layout.h. If all are zero, torch itself is called."""

    kind: int = 0
    storage: int = 0
    shape: int = 0
    data: int = 0
    impl: int = 0
    autograd: int = 0
    requires_grad: int = 0

    def use(self) -> None:
        """Make all watches read tensors by this layout."""
        _C.Watch.set_torch_layout(**asdict(self))


def add_tensors(watch: _C.Watch, tensors: Sequence[torch.Tensor]) -> int:
    """Watch the memory, shape, strides and dtype of tensors."""
    plain = [type(tensor) in PLAIN for tensor in tensors]
    return watch.add_tensors(list(tensors), [_handle(tensor) for tensor in tensors], plain)


def find() -> TorchLayout:
    """Return the layout of this process's torch, in use from now on; zeros for fields that are not found or fail the test."""
    layout = TorchLayout()
    for part, test in ((_find_places, _sees_places), (_find_requires_grad, _sees_requires_grad)):
        try:
            found = replace(layout, **part())
            found.use()
            layout = found if test() else layout
        except (ValueError, RuntimeError, AttributeError):  # it is missing, not unique, or not as expected
            pass
    layout.use()
    return layout


def words_at(address: int, count: int) -> list[int]:
    """Return `count` words of 8 bytes of an object in memory."""
    return list((ctypes.c_uint64 * count).from_address(address))


def _cdata(owner: Any) -> int:
    """Return the address of the TensorImpl or the StorageImpl."""
    return owner._cdata


def _lazy_clone(tensor: torch.Tensor) -> torch.Tensor:
    library: Any = torch
    return library._lazy_clone(tensor)


def _resize_storage(tensor: torch.Tensor, nbytes: int) -> None:
    storage: Any = tensor.untyped_storage()
    storage.resize_(nbytes)


def _only(places: Iterable[int]) -> int:
    """Return the only place, in bytes. Raises ValueError if there is another number of them."""
    (place,) = places
    return place * _WORD


def _find_places() -> dict[str, int]:
    sizes, strides, offset = (2, 3, 4, 5, 6), (1201, 401, 101, 21, 3), 17
    flat = torch.frombuffer(bytearray(4 * 4096), dtype=torch.float32)
    tensor = flat.as_strided(sizes, strides, offset)
    words, storage = words_at(_cdata(tensor), _TENSOR), tensor.untyped_storage()
    shape = [5, *sizes, *strides, offset, tensor.numel()]
    shared, other, single = (
        torch.zeros(64, device="cpu"),
        torch.zeros(64, device="cpu"),
        torch.zeros(64, device="cpu"),
    )
    data = _only(i for i, word in enumerate(words_at(_cdata(storage), 4)) if word == storage.data_ptr())
    clone = _lazy_clone(shared)
    frees = [words_at(_cdata(t.untyped_storage()) + data, 2)[1] for t in (shared, clone, other, single)]
    if not frees[0] == frees[1] != frees[2] == frees[3]:
        raise ValueError("behind the memory of a storage is not what frees it")
    return {
        "kind": words[0],
        "storage": _only(i for i, word in enumerate(words) if word == _cdata(storage)),
        "shape": _only(i for i in range(_TENSOR - len(shape) + 1) if words[i : i + len(shape)] == shape),
        "data": data,
    }


def _find_requires_grad() -> dict[str, int]:
    tensor = torch.zeros(1, device="cpu")
    object_words = words_at(id(tensor), type(tensor).__basicsize__ // _WORD)
    before = words_at(_cdata(tensor), _TENSOR)
    tensor.requires_grad_()
    after = words_at(_cdata(tensor), _TENSOR)
    autograd = _only(i for i in range(_TENSOR) if before[i] != after[i])
    address = after[autograd // _WORD]
    if before[autograd // _WORD]:
        raise ValueError("autograd's part of a tensor is not made when it is needed")
    on = ctypes.string_at(address, _AUTOGRAD * _WORD)
    tensor.requires_grad_(False)
    off = ctypes.string_at(address, _AUTOGRAD * _WORD)
    (byte,) = (i for i in range(len(on)) if on[i] != off[i])
    if (on[byte], off[byte]) != (1, 0):
        raise ValueError("requires_grad is not a flag")
    return {
        "impl": _only(i for i, word in enumerate(object_words) if word == _cdata(tensor)),
        "autograd": autograd,
        "requires_grad": byte,
    }


CHANGES: dict[str, Callable[[torch.Tensor], object]] = {
    ".data = other memory": lambda t: setattr(t, "data", torch.zeros(4, 4, device="cpu")),
    ".data = other strides": lambda t: setattr(t, "data", t.detach().t()),
    ".data = other offset": lambda t: setattr(t, "data", t.detach().as_strided((4, 4), (4, 1), 4)),
    ".data = other sizes": lambda t: setattr(t, "data", t.detach()[:2]),
    ".data = fewer dimensions": lambda t: setattr(t, "data", t.detach().view(16)),
    ".data = other dtype": lambda t: setattr(t, "data", t.detach().view(torch.int32)),
    "set_": lambda t: t.set_(torch.zeros(64, device="cpu").untyped_storage(), 0, (4, 4), (4, 1)),
    "resize_": lambda t: t.resize_(2, 2),
    "as_strided_": lambda t: t.as_strided_((4, 4), (1, 4)),
    "t_": lambda t: t.t_(),
    "storage freed": lambda t: _resize_storage(t, 0),
    "storage grown": lambda t: _resize_storage(t, 1 << 16),
    "copied on write": _lazy_clone,
}
"""Each way to give a tensor of 4 x 4, with memory of its own, another place; the returned object keeps it so."""


def _sees_places() -> bool:
    for change in CHANGES.values():
        tensor, watch = torch.zeros(64, device="cpu")[:16].view(4, 4), _C.Watch()
        add_tensors(watch, [tensor])
        if watch.count_words(0) != 1 or watch.changed() != -1:
            return False
        kept = change(tensor)
        if watch.changed() != 0:
            return False
        del kept
    return True


def _sees_requires_grad() -> bool:
    tensor, watch = torch.zeros(1, device="cpu"), _C.Watch()
    watch.add_trained([tensor])
    seen = [watch.changed()]
    for flag in (True, False, True):
        tensor.requires_grad_(flag)
        seen.append(watch.changed())
    return seen == [0, -1, 0, -1]


LAYOUT = find()
"""The layout of this process's torch."""
