"""The elements under a mask: `x[mask]`, `masked_select`, `nonzero`, whose number depends on values.

A compiled step has tensors of one size. So the rows of `x` stay where they are, beside the mask, as a `Selected`, and each
function of the user's code is called on all rows (`selected_rules.py`): what acts on each row alone is done as it stands, a sum
over rows leaves out those that the mask does. A row that is left out holds a copy of the first selected one, so that it gives no
infinity or NaN that the others would not; it takes no part in gradients.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

import torch

from aicf_mlir.frontend import source
from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.frontend.values import is_a

Tensor = torch.Tensor


class Selected(Tensor):
    """Rows that a mask selects, in place of the tensor [selected, …] that torch would give."""

    rows: Tensor
    """[N, …], all of them."""
    mask: Tensor
    """[N] of booleans."""
    key: object
    """Equal for the same selection of the same rows."""
    is_led: bool = False
    """Whether a dimension of one stands in front of that of the rows, as after `x[None, places]`."""

    @staticmethod
    def of(rows: Tensor, mask: Tensor, key: object) -> Selected:
        """Return the selection of some rows that are valid everywhere."""
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            made = Tensor._make_wrapper_subclass(Selected, rows.shape, dtype=rows.dtype)
        made.rows, made.mask, made.key = rows, mask, key
        return made

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Raise TraceError: a function has got hold of it that torch calls by itself."""
        location = source.here()
        raise trace_error(
            f"the step gives the elements under a mask{quoted(location)} to {func}, which torch calls by itself; compute with"
            " tensors of one size (torch.where, or a product with the mask)",
            location,
        )

    def like(self, rows: Tensor) -> Selected:
        """Return the same selection of other rows."""
        return Selected.of(rows, self.mask, self.key)


def select(x: Tensor, mask: Tensor, key: object) -> Selected:
    """Return `x[mask]`; `mask` has the first dimensions of `x`."""
    rows = x.reshape(-1, *x.shape[mask.dim() :])
    flat = mask.reshape(-1).clone()  # the user may write to the mask
    first = flat.to(torch.float32).argmax().reshape(1)
    filled = rows.detach().index_select(0, first)
    chosen = torch.where(along(flat, rows), rows, filled)
    return Selected.of(chosen.contiguous(), flat, key)  # as torch makes it: views of it are the same ones


def along(mask: Tensor, rows: Tensor) -> Tensor:
    """Return a mask of rows in the rank of `rows`."""
    return mask.reshape(-1, *[1] * (rows.dim() - 1))


def places(mask: Tensor, key: object) -> list[Selected]:
    """Return `mask.nonzero(as_tuple=True)`."""
    found: list[Selected] = []
    inner = mask.numel()
    numbers = torch.arange(inner, device=mask.device)
    for size in mask.shape:
        inner //= max(size, 1)
        found.append(select((numbers // max(inner, 1) % max(size, 1)).reshape(mask.shape), mask, key))
    return found


class Knows(Protocol):
    """What decides if the values of tensors are known to the trace."""

    def has_all(self, operands: object) -> bool:
        """Return True if they all are."""
        ...


SAME = frozenset(
    (
        *("eq", "ne", "lt", "le", "gt", "ge", "less", "less_equal", "greater", "greater_equal", "not_equal"),
        *("logical_and", "logical_or", "logical_not", "logical_xor", "bitwise_and", "bitwise_or"),
        *("bitwise_not", "bitwise_xor", "and", "or", "xor", "invert", "isnan", "isfinite", "isinf", "isin"),
        *("bool", "any", "all", "getitem", "view", "reshape", "flatten", "squeeze", "unsqueeze", "select"),
        *("detach", "contiguous", "abs", "transpose", "t", "permute", "float", "long", "to", "expand"),
    )
)
"""Functions, by name, that give the same for the same operands: masks computed twice by them are one."""


COMPARED = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
"""Comparisons, by name."""


class Masks:
    """Tells which masks are the same, by what they are computed from."""

    def __init__(self) -> None:
        self._keys: dict[int, tuple[Tensor, int, object]] = {}
        """Computed tensors by id, each with its version and key."""
        self._counts: dict[int, tuple[Tensor, object]] = {}
        """0-d tensors by id that are the number of selected rows, with the key of the selection."""
        self._full: dict[int, tuple[Tensor, int | bool, object]] = {}
        """0-d tensors by id that follow from a number of selected rows, with the value that they have if all rows are selected,
        and the key of the mask.
        """
        self.selected: set[object] = set()
        """The keys of the masks that rows were selected by."""
        self._kept: list[object] = []
        """Keeps the ids in keys from being given again."""

    def note(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Remember the key of a tensor that a function of `SAME` has made, and what follows from a number of rows."""
        self._follow(name.strip("_"), args, kwargs, result)
        plain, is_in_place = name.strip("_"), name.endswith("_") and not name.startswith("__")
        if (
            is_in_place
            or plain not in SAME
            or not is_a(result, Tensor)
            or next(tensors_in(args), None) is None
        ):
            return
        key = (
            plain,
            tuple(map(self.key, args)),
            tuple((each, self.key(value)) for each, value in kwargs.items()),
        )
        self._keys[id(result)] = result, result._version, key

    def count(self, x: Selected, each: int = 1) -> Tensor:
        """Return the number of selected rows, or of elements of rows of `each`."""
        number = x.mask.sum() * each if each != 1 else x.mask.sum()
        if each == 1:
            self._counts[id(number)] = number, x.key
        self._full[id(number)] = number, x.mask.numel() * each, None
        return number

    def full(self, value: Any) -> tuple[int | bool, object] | None:
        """Return the value that a tensor has if all rows are selected, and the key of a mask that must select some; None if it
        does not follow from their number.
        """
        known = self._full.get(id(value))
        return known[1:] if known is not None and known[0] is value else None

    def _follow(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Remember a number of selected rows, and a comparison of one."""
        if kwargs or not is_a(result, Tensor) or result.dim():
            return
        if (
            name in ("any", "sum")
            and len(args) == 1
            and args[0].dtype is torch.bool
            and type(args[0]) is not Selected
        ):
            self._full[id(result)] = result, True if name == "any" else args[0].numel(), self.key(args[0])
        pair = [(each, None) if type(each) in (int, float) else self.full(each) for each in args]
        if name in COMPARED and len(pair) == 2 and None not in pair:
            (one, key), (other, key2) = cast(Any, pair)
            self._full[id(result)] = result, getattr(operator, name)(one, other), key or key2

    def is_count(self, value: Any, x: Selected) -> bool:
        """True if `value` is the number of rows of this selection, as `count` gave it."""
        known = self._counts.get(id(value))
        return known is not None and known[0] is value and known[1] == x.key

    def key(self, value: Any) -> object:
        """Return a key that is equal for equal values; of tensors for those that are known to be equal."""
        if is_a(value, Tensor):
            known = self._keys.get(id(value))
            if known is not None and known[1] == value._version:
                return known[2]
            self._kept.append(value)
            return "tensor", id(value), value._version
        if type(value) in (tuple, list):
            return type(value).__name__, tuple(map(self.key, value))
        if type(value) is slice:
            return "slice", *map(self.key, (value.start, value.stop, value.step))
        if value is None or value is Ellipsis or type(value) in (bool, int, float, str, torch.dtype):
            return type(value).__name__, value.hex() if type(value) is float else value
        self._kept.append(value)
        return "object", id(value)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor in arguments of a torch function, in plain tuples, lists, dictionaries and slices."""
    if is_a(value, Tensor):
        yield value
    elif type(value) in (tuple, list):
        for each in value:
            yield from tensors_in(each)
    elif type(value) is dict:
        yield from tensors_in(list(cast(dict[str, Any], value).values()))
    elif type(value) is slice:
        yield from tensors_in([value.start, value.stop, value.step])
