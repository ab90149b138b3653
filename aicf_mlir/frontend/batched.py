"""The tensors inside of `torch.vmap`: each is a wrapper of a tensor with one more dimension."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from aicf_mlir.frontend import source
from aicf_mlir.frontend.source import quoted, trace_error

FUNCTORCH: Any = vars(torch._C)["_functorch"]  # pyright: ignore[reportPrivateUsage]
"""Torch's own functions on them; there are no public ones."""


PREDISPATCH: Any = import_module("torch._functorch.predispatch")
"""The functions with which torch.vmap adds and removes rows, so that it is traced."""


MOST_ROWS = 128
"""As many gradients are written one after the other, each with operations of its own: 128 of a small network compile in 40 s."""


def expect_few(rows: int) -> None:
    """Raise TraceError if gradients of that many rows would have to be written one after the other."""
    if rows > MOST_ROWS:
        location = source.here()
        raise trace_error(
            f"the step takes {rows} gradients of one value{quoted(location)}, one for each row of what it is multiplied by; at"
            f" most {MOST_ROWS} are supported: of a batch take the Jacobian of each sample, vmap(jacrev(f))(x)"
            ", or use torch.func.jacfwd where there are fewer inputs than outputs",
            location,
        )


def is_batched(tensor: torch.Tensor) -> bool:
    """True for a tensor inside of vmap that differs from row to row."""
    return FUNCTORCH.is_batchedtensor(tensor)


def unbatched(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with all rows."""
    while is_batched(tensor):
        tensor = FUNCTORCH.get_unwrapped(tensor)
    return tensor


def rows_of(tensor: torch.Tensor, level: int, rows: int, dim: int) -> torch.Tensor:
    """Return a result of the vmap at a level with its rows along `dim`; torch would move them where no trace sees it."""
    if is_batched(tensor) and FUNCTORCH.maybe_get_bdim(tensor):
        tensor = tensor.unsqueeze(0).squeeze(0)  # a view whose rows are in front
    first = PREDISPATCH._remove_batch_dim(tensor, level, rows, 0)
    return first.movedim(0, dim) if dim else first


def all_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with the rows of every vmap around it, as a value of the trace."""
    while is_batched(tensor):
        rows = FUNCTORCH.get_unwrapped(tensor).shape[FUNCTORCH.maybe_get_bdim(tensor)]
        tensor = rows_of(tensor, FUNCTORCH.maybe_get_level(tensor), rows, 0)
    return tensor


def batches() -> bool:
    """True inside of vmap."""
    return bool(FUNCTORCH.maybe_current_level())


def only_batches() -> bool:
    """True if no transform of torch.func runs but vmap."""
    return not batches() or all(
        each.key() == FUNCTORCH.TransformType.Vmap for each in FUNCTORCH.get_interpreter_stack()
    )


@contextmanager
def levels_restored() -> Generator[None]:
    """End the levels of vmap that an error inside has left open."""
    level: int | None = FUNCTORCH.maybe_current_level()
    try:
        yield
    finally:
        while FUNCTORCH.maybe_current_level() != level:
            FUNCTORCH._vmap_decrement_nesting()


def at_this_level(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that all rows of the running vmap share as one of each row, which has a gradient of its own."""
    level = FUNCTORCH.maybe_current_level()
    if not level or not only_batches() or FUNCTORCH.maybe_get_level(tensor) == level:
        return tensor
    running = FUNCTORCH.peek_interpreter_stack()  # the pointer to it does not keep it
    rows: int = FUNCTORCH.CVmapInterpreterPtr(running).batchSize()
    return PREDISPATCH._add_batch_dim(tensor.unsqueeze(0).expand(rows, *tensor.shape), 0, level)


def made_leaf(tensor: torch.Tensor) -> torch.Tensor:
    """Make a new tensor a leaf with a gradient, inside of vmap too."""
    allowed: bool = FUNCTORCH.get_inplace_requires_grad_allowed()
    FUNCTORCH.set_inplace_requires_grad_allowed(True)
    try:
        unbatched(tensor).requires_grad_()
    finally:
        FUNCTORCH.set_inplace_requires_grad_allowed(allowed)
    return tensor
