"""Functions on the elements under a mask that have a rule of their own: sizes, indices, shapes, products, joins."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from aicf_mlir.frontend.selected import Masks, Selected, along, select, tensors_in
from aicf_mlir.frontend.values import is_a

Tensor = torch.Tensor


class NotByRow(Exception):
    """A function has no rule; the message is what it would need."""


@dataclass(repr=False)
class Forms:
    """One call of a function on selections; `of_NAME` is what the function NAME gives."""

    masks: Masks
    func: Callable[..., Any]
    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def expect_together(self, first: Selected, apart: int | None = None) -> None:
        """Check that all operands stand beside the selected rows; those from number `apart` on may be anything but selections."""
        for number, each in enumerate([*self.args, *self.kwargs.values()]):
            for tensor in tensors_in(each):
                if type(tensor) is Selected:
                    if tensor.key != first.key:
                        raise NotByRow("one mask for all operands (make it once, and use it for each)")
                    if apart is None and tensor.rows.dim() != first.rows.dim():
                        raise NotByRow("operands of one rank")
                elif (apart is None or number < apart) and has_rows(tensor, first):
                    raise NotByRow("operands that are selected too, or have no rows")

    def of_shape(self) -> Any:
        """Return the sizes; the first one is a 0-d tensor."""
        x = cast(Selected, self.args[0])
        return (self.masks.count(x), *x.rows.shape[1:])

    def of_size(self) -> Any:
        """Return one size or all."""
        dim = self.kwargs.get("dim", self.args[1] if len(self.args) > 1 else None)
        return self.of_shape() if dim is None else self.of_shape()[dim]

    def of_numel(self) -> Any:
        """Return the number of elements, a 0-d tensor."""
        x = cast(Selected, self.args[0])
        return self.masks.count(x, math.prod(x.rows.shape[1:]))

    of_nelement = of_numel

    def of_len(self) -> Any:
        """Return the number of rows, a 0-d tensor: `len` itself is replaced while a step is traced."""
        return self.masks.count(cast(Selected, self.args[0]))

    def of_getitem(self) -> Any:
        """Index selected rows, or anything by selected places."""
        x, index = self.args
        parts = parts_of(index)
        if type(x) is not Selected:
            return self.taken(x, parts)
        if type(parts[0]) is Selected and parts[0].rows.dtype is torch.bool:
            inner = parts[0]
            if len(parts) > 1 or inner.key != x.key or inner.rows.dim() != 1:
                raise NotByRow("a mask of the selected rows")
            both = x.mask & inner.rows
            return select(x.rows, both, ("and", x.key, self.masks.key(inner.rows)))
        return x.like(self.of_each_row(x, parts))

    def of_each_row(self, x: Selected, parts: tuple[Any, ...]) -> Tensor:
        """Return what an index takes of each selected row."""
        if any(type(each) is Selected for each in tensors_in(parts)):
            raise NotByRow("an index that is not selected too")
        whole = parts[0] is Ellipsis and sum(each is not None for each in parts[1:]) < x.rows.dim()
        if not whole and not (type(parts[0]) is slice and parts[0] == slice(None)):
            raise NotByRow("all selected rows")
        if any(is_a(each, Tensor) and each.dtype in (torch.bool, torch.uint8) for each in parts):
            raise NotByRow("no second mask")
        return x.rows[parts]

    def taken(self, x: Tensor, parts: tuple[Any, ...]) -> Selected:
        """Return the elements of `x` at selected places, maybe with a dimension of one in front."""
        is_led, parts = parts[0] is None, parts[parts[0] is None :]
        chosen = [each for each in parts if type(each) is Selected]
        first = chosen[0]
        if (
            parts[: len(chosen)] != tuple(chosen)
            if len(parts) == len(chosen)
            else type(parts[0]) is not Selected
        ):
            raise NotByRow("selected places in the first dimensions")
        rest = parts[len(chosen) :]
        if any(type(each) not in (int, slice, type(None), type(Ellipsis)) for each in rest) or not all(
            each.key == first.key and each.rows.dim() == 1 and each.rows.dtype is not torch.bool
            for each in chosen
        ):
            raise NotByRow("places of one mask")
        made = first.like(x[(*(each.rows for each in chosen), *rest)])
        made.is_led = is_led
        return made

    def without_lead(self) -> Any:
        """Return what a function makes of rows with a dimension of one in front, if it takes that dimension away."""
        x, *given = self.args
        match self.name, *given:
            case (("squeeze" | "__getitem__"), int(first)) if first == 0:
                return x.like(x.rows)
            case (("view" | "reshape"), *_) if type(x) is Selected:
                self.args = (x.like(x.rows), *given)
                return self.of_view()
            case _:
                raise NotByRow("x[None, places] to be reshaped to [-1, …] first")

    def of_index_select(self) -> Selected:
        """Take rows at selected places."""
        x, dim, index = bound(self.args, self.kwargs, "input", "dim", "index")
        if dim != 0 or type(x) is Selected:
            raise NotByRow("the first dimension of a tensor that is not selected")
        return self.taken(x, (index,))

    def of_setitem(self) -> None:
        """`x[mask] = selected`, of the same mask, `x[places] = selected`, or `selected[:, index] = value`."""
        x, index, value = self.args
        parts = parts_of(index)
        if type(x) is Selected:
            self.set_in_rows(x, parts, value)
            return
        lead: list[Any] = [each for each in parts if is_a(each, Tensor)]
        rest = parts[len(lead) :]
        if not lead or any(
            is_a(each, Tensor) or type(each) not in (int, slice, type(Ellipsis)) for each in rest
        ):
            raise NotByRow("a mask or places in front, and numbers or slices behind them")
        if rest:
            x = x[(*[slice(None)] * (lead[0].dim() if is_mask(lead[0]) else len(lead)), *rest)]
        if all(type(e) is Selected and e.rows.dtype is not torch.bool for e in lead):
            first, *others = lead
            if any(each.key != first.key or each.rows.dim() != 1 for each in lead) or (
                type(value) is Selected and value.key != first.key
            ):
                raise NotByRow("places and rows of one mask")
            beyond = torch.where(first.mask, first.rows, x.shape[0])  # a row more takes what is not selected
            longer = torch.cat([x, x[:1]])
            longer[(beyond, *(each.rows for each in others))] = (
                value.rows.to(x.dtype) if type(value) is Selected else value
            )
            x.copy_(longer[: x.shape[0]])
        elif type(value) is not Selected or len(lead) > 1 or not is_mask(lead[0]):
            raise NotByRow("the mask of the selected elements between the brackets")
        else:
            x.copy_(self.put(x, lead[0], value))

    def set_in_rows(self, x: Selected, parts: tuple[Any, ...], value: Any) -> None:
        """Write rows of the same mask or a number where an index says, or a number under a mask of the selected rows."""
        first = parts[0]
        is_number = not is_a(value, Tensor) or (type(value) is not Selected and not value.dim())
        if type(first) is Selected and first.rows.dtype is torch.bool:
            if len(parts) > 1 or first.key != x.key or not is_number:
                raise NotByRow("a number, under a mask of the selected rows")
            under = first.rows.reshape(*first.rows.shape, *[1] * (x.rows.dim() - first.rows.dim()))
            x.rows.masked_fill_(under, value)
            return
        taken = self.of_each_row(x, parts)
        if type(value) is Selected and (value.key != x.key or value.rows.dim() != taken.dim()):
            raise NotByRow("rows of one mask and one rank")
        if type(value) is not Selected and is_a(value, Tensor) and has_rows(value, x.like(taken)):
            raise NotByRow("rows that are selected too, or a number")
        x.rows[parts] = value.rows if type(value) is Selected else value

    def of_masked_scatter(self) -> Tensor:
        """Put selected elements to their places."""
        x, mask, value = bound(self.args, self.kwargs, "self", "mask", "source")
        if type(x) is Selected or type(mask) is Selected:
            raise NotByRow("a tensor and a mask that are not selected")
        return self.put(x, mask.expand(x.shape) if mask.shape != x.shape else mask, value)

    def put(self, x: Tensor, mask: Tensor, value: Selected) -> Tensor:
        """Return `x` with selected rows in their places."""
        shape = (*mask.shape, *value.rows.shape[1:])
        if value.key != ("mask", self.masks.key(mask)) or shape != tuple(x.shape):
            raise NotByRow("elements of the same mask (make it once, and use it for each)")
        keep = mask.reshape((*mask.shape, *[1] * (x.dim() - mask.dim())))
        return torch.where(keep, torch.reshape(value.rows, tuple(x.shape)).to(x.dtype), x)

    def of_view(self) -> Any:
        """Give each row another shape, or make rows of their elements."""
        x, *given = self.args
        sizes: list[Any] = (
            list(given[0]) if len(given) == 1 and type(given[0]) in (tuple, list, torch.Size) else given
        )
        sizes = sizes or list(self.kwargs.get("shape", ()))
        rows, shape = x.rows, x.rows.shape
        lead, rest = (sizes[0], sizes[1:]) if sizes else (None, [])
        is_all = is_a(lead, int) and lead == -1
        if is_all and not rest:
            return self.flat(x)
        if not is_all and not self.masks.is_count(lead, x):
            raise NotByRow("their number as the first size: -1, or x.shape[0]")
        if any(not is_a(n, int) for n in rest) or (is_all and math.prod(rest) != math.prod(shape[1:])):
            raise NotByRow("a shape of each row alone")
        return x.like(rows.reshape(shape[0], *rest))

    of_reshape = of_view

    def flat(self, x: Selected) -> Selected:
        """Return all elements of the selected rows."""
        each = math.prod(x.rows.shape[1:])
        mask = x.mask[:, None].expand(-1, each).reshape(-1)
        return Selected.of(x.rows.reshape(-1), mask, x.key if each == 1 else ("elements", x.key, each))

    def of_flatten(self) -> Any:
        """Flatten each row, or all."""
        x, start, end = bound(self.args, self.kwargs, "input", "start_dim", "end_dim")
        if (start or 0) == 0:
            if end not in (None, -1, x.rows.dim() - 1):
                raise NotByRow("one row at a time")
            return self.flat(x)
        return x.like(x.rows.flatten(start, -1 if end is None else end))

    of_ravel = of_flatten

    def of_transpose(self) -> Any:
        """Exchange two dimensions of each row."""
        x, *dims = bound(self.args, self.kwargs, "input", "dim0", "dim1")
        if 0 in (dimensions(dims, x.rows.dim()) or (0,)):
            raise NotByRow("one row at a time")
        return x.like(x.rows.transpose(*dims))

    def of_pad(self) -> Selected:
        """Pad each row with a number."""
        x, pad, mode, value = bound(self.args, self.kwargs, "input", "pad", "mode", "value")
        if type(x) is not Selected or mode not in (None, "constant") or len(pad) // 2 >= x.rows.dim():
            raise NotByRow("rows that are each padded with a number")
        return x.like(torch.nn.functional.pad(x.rows, pad, value=value))

    def of_matmul(self) -> Any:
        """Multiply each row by a matrix."""
        x, other = self.args
        if type(other) is Selected or type(x) is not Selected or x.rows.dim() < 2 or other.dim() > 2:
            raise NotByRow("selected rows on the left of a matrix")
        return x.like(x.rows @ other)

    of_mm = of_matmul

    def of_cat(self) -> Any:
        """Join rows side by side, or one after the other, with those of tensors that are not selected."""
        parts, dim = bound(self.args, self.kwargs, "tensors", "dim")
        first = next(each for each in parts if type(each) is Selected)
        if dimensions(dim or 0, first.rows.dim()) != (0,):
            if not all(type(each) is Selected for each in parts):
                raise NotByRow("selections alone")
            self.expect_together(first)
            return first.like(torch.cat([each.rows for each in parts], dim))
        whole = [
            each if type(each) is Selected else Selected.of(each, all_of(each), self.masks.key(each))
            for each in parts
        ]
        rows, mask = torch.cat([each.rows for each in whole]), torch.cat([each.mask for each in whole])
        return Selected.of(rows, mask, ("cat", tuple(each.key for each in whole)))

    of_concat = of_cat

    def of_stack(self) -> Any:
        """Join rows along a new dimension."""
        parts, dim = bound(self.args, self.kwargs, "tensors", "dim")
        if not all(type(each) is Selected for each in parts):
            raise NotByRow("selections alone")
        self.expect_together(parts[0])
        if 0 in (dimensions(dim or 0, parts[0].rows.dim() + 1) or (0,)):
            raise NotByRow("a dimension that is not that of the selected rows")
        return parts[0].like(torch.stack([p.rows for p in parts], dim))

    def of_index_add(self) -> Tensor:
        """Add selected rows to rows of a tensor."""
        x, dim, index, source = bound(self.args, self.kwargs, "self", "dim", "index", "source")
        chosen = [each for each in (index, source) if type(each) is Selected]
        if type(x) is Selected or dim != 0 or len(chosen) < 2 or index.key != source.key:
            raise NotByRow("places and rows of one mask")
        rows = torch.where(along(source.mask, source.rows), source.rows, 0)
        call = x.index_add_ if self.name.endswith("_") else x.index_add
        return call(0, index.rows, rows, **{n: v for n, v in self.kwargs.items() if n == "alpha"})


def is_mask(value: Any) -> bool:
    """True for a tensor of booleans."""
    return is_a(value, Tensor) and value.dtype is torch.bool


def parts_of(index: Any) -> tuple[Any, ...]:
    """Return an index between brackets dimension by dimension."""
    return cast(tuple[Any, ...], index) if type(index) is tuple else (index,)


def has_rows(x: Tensor, first: Selected) -> bool:
    """True if a tensor that is not selected meets the selected rows of `first` with more than one of its own."""
    rank = first.rows.dim()
    return x.dim() > rank or (x.dim() == rank and x.shape[0] != 1)


def all_of(x: Tensor) -> Tensor:
    """Return the mask of all rows."""
    return torch.ones(x.shape[:1], dtype=torch.bool, device=x.device)


def bound(args: Sequence[Any], kwargs: Mapping[str, Any], *names: str) -> tuple[Any, ...]:
    """Return arguments by position or name; None for one that is not given."""
    return tuple(args[i] if i < len(args) else kwargs.get(name) for i, name in enumerate(names))


def dimensions(given: Any, rank: int) -> tuple[int, ...] | None:
    """Return dimensions from the front; None for all."""
    if given is None or given == () or given == []:
        return None
    each: list[Any] = [given] if is_a(given, int) else list(given) if type(given) in (tuple, list) else []
    return tuple(int(dim) % max(rank, 1) for dim in each) if each and not is_a(given, bool) else None
