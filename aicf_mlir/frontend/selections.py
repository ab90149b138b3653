"""Functions that select elements by a mask, while a step is traced: what they give, and what is done with it."""

from __future__ import annotations

import builtins
import inspect
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch._ops import OpOverload

from aicf_mlir.frontend import source
from aicf_mlir.frontend.assertions import ASSERT, in_while, users
from aicf_mlir.frontend.batched import is_batched
from aicf_mlir.frontend.reads import Replaced, while_tracing
from aicf_mlir.frontend.selected import Knows, Masks, Selected, places, select, tensors_in
from aicf_mlir.frontend.selected_forms import NotByRow, bound, is_mask, parts_of
from aicf_mlir.frontend.selected_rules import Rules
from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.frontend.values import is_a
from aicf_mlir.ir.locations import SourceLocation

Tensor = torch.Tensor

SELECTS = frozenset(("__getitem__", "masked_select", "where", "nonzero", "argwhere"))
"""Functions, by name, whose result may be a selection."""
MOST_ROUNDS = 50
"""Of a `while` that ends where a mask selects nothing: a trace would go on for ever, since each mask selects something there."""


class Selections:
    """The selections of one trace."""

    def __init__(self, known: Knows):
        self.masks = Masks()
        self._known = known
        self._decided: list[tuple[object, Exception]] = []
        """The masks by which a branch was decided, each with the error for one that selects nothing."""
        self._rounds = Counter[object]()
        """How often each place inside of a `while` has decided."""

    @contextmanager
    def decided(self) -> Generator[None]:
        """Raise TraceError if the code inside decides by a mask that selects nothing: it may have taken the wrong side."""
        try:
            yield
        finally:
            for key, error in self._decided:
                if key not in self.masks.selected:
                    raise error

    def instead(
        self,
        func: Callable[..., Any],
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        location: SourceLocation | None,
    ) -> Callable[[], Any] | None:
        """Return what to call in place of a function that selects elements or takes some; None to call the function."""
        if any(type(each) is Selected for each in tensors_in([args, dict(kwargs)])):
            return lambda: of_selected(Rules(self.masks, func, name, args, kwargs), location)
        if (
            name == "__setitem__"
            and is_mask(args[1])
            and not args[1].dim()
            and not self._known.has_all((args[1],))
        ):
            x, mask, value = args
            return lambda: x.copy_(torch.where(mask, value, x))  # torch would read the mask
        if name not in SELECTS or (found := selecting(self.masks, name, args, kwargs)) is None:
            return None
        mask, select = found
        if is_batched(mask) or self._known.has_all((mask,)):
            return None
        self.masks.selected.add(self.masks.key(mask))
        return select

    def side(
        self, name: str, condition: Tensor, location: SourceLocation | None, refusal: Exception
    ) -> bool | None:
        """Return the side of a branch on a number of selected elements that is taken if all are, with a check; None for another
        branch. `refusal`: the error if nothing is selected by that mask.
        """
        known = self.masks.full(condition)
        if name != "__bool__" or known is None or self._is_endless():
            return None
        full, key = known
        if key is not None:
            self._decided.append((key, refusal))
        holds = condition != 0
        text = f"{quoted(location).strip(' ()') or 'a branch'} on the number of elements under a mask takes its other side"
        source.call_at(location, ASSERT, holds if full else holds.logical_not(), text)
        return bool(full)

    def _is_endless(self) -> bool:
        """True where a `while` of the user's code has decided too often."""
        frame = inspect.currentframe()
        while frame is not None and frame.f_code.co_name in ("_is_endless", "side"):
            frame = frame.f_back
        frame = users(frame)
        if frame is None or not in_while(frame):
            return False
        place = frame.f_code, frame.f_lasti
        self._rounds[place] += 1
        return self._rounds[place] > MOST_ROUNDS


@contextmanager
def counted() -> Generator[None]:
    """Let `len` of a selection be a tensor inside."""
    known = builtins.len

    def count(x: Any) -> Any:
        size: Any = Tensor.__len__ if type(x) is Selected else known
        return size(x)

    with while_tracing() as is_here:
        try:
            builtins.len = cast(Any, Replaced(count, known, is_here))
            yield
        finally:
            builtins.len = known


def of_selected(rules: Rules, location: SourceLocation | None) -> Any:
    """Return what a function gives of selections. Raises TraceError where it has no rule."""
    try:
        return rules.result()
    except NotByRow as error:
        name = "a torch.autograd.Function" if type(rules.func) is OpOverload else rules.name.strip("_")
        raise trace_error(
            f"the step calls {name} on the elements under a mask{quoted(location)}, whose number it does not know:"
            f" expected {error}; or compute with tensors of one size (torch.where, or a product with the mask)",
            location,
        ) from None


def selecting(
    masks: Masks, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Tensor, Callable[[], Any]] | None:
    """Return the mask of a function that selects, and what it gives; None if it does not select."""
    match name:
        case "__getitem__":
            x, index = args
            parts = parts_of(index)
            if not parts or not is_mask(parts[0]) or parts[0].dim() > x.dim():
                return None
            mask, rest = parts[0], parts[1:]
            if tuple(x.shape[: mask.dim()]) != tuple(mask.shape) or any(
                type(each) not in (slice, int, type(None), type(Ellipsis)) for each in rest
            ):
                return None
            whole = (slice(None),) * mask.dim()
            return mask, lambda: select(x[(*whole, *rest)] if rest else x, mask, ("mask", masks.key(mask)))
        case "masked_select":
            x, mask = bound(args, kwargs, "input", "mask")

            def chosen() -> Selected:
                shape: tuple[int, ...] = tuple(vars(torch)["broadcast_shapes"](x.shape, mask.shape))
                is_whole = tuple(mask.shape) == shape
                key: object = ("mask", masks.key(mask)) if is_whole else ("wide", masks.key(mask), shape)
                return select(x.expand(shape), mask.expand(shape), key)

            return (mask, chosen) if is_mask(mask) else None
        case "where" | "nonzero" | "argwhere":
            if (
                not args
                or len(args) > 1
                or not is_a(args[0], Tensor)
                or set(kwargs) - {"as_tuple"}
                or not args[0].dim()
            ):
                return None

            def found() -> Any:
                mask = args[0] if args[0].dtype is torch.bool else args[0] != 0
                at = places(mask, ("mask", masks.key(args[0])))
                if name == "where" or kwargs.get("as_tuple"):
                    return tuple(at)
                return at[0].like(torch.stack([each.rows for each in at], 1))

            return args[0], found
        case _:
            return None


def refuse_returned(result: Any, location: SourceLocation | None) -> None:
    """Raise TraceError if a step returns a selection."""
    if any(type(each) is Selected for each in tensors_in(result)):
        raise trace_error(
            "the step returns the elements under a mask, whose number it does not know; return all of them, and the mask",
            location,
        )
