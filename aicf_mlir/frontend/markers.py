"""The ops in the graph of a step for torch's work outside it: gradients, leaves, and in a loop body updates and old gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aicf_mlir.frontend.batched import expect_few

_library: Any = torch.library.Library("aicf_train", "DEF")
_library.define("backward(Tensor loss, Tensor[] wrt, bool retain_graph) -> Tensor[]")
_library.define("update(Tensor[] params, Tensor[] grads, Tensor? taken) -> Tensor[]")
_library.define("written(Tensor value, int number) -> Tensor")
_library.define("leaf(Tensor value, int number) -> Tensor")
_library.define("left(Tensor param) -> Tensor")
_library.define("input(Tensor value) -> Tensor")
_library.define(
    "gradient(Tensor[] outputs, Tensor[] seeds, Tensor[] wrt, bool create_graph, bool retain_graph) -> Tensor[]"
)


_library.define(
    "gradient_rows(Tensor[] outputs, Tensor[] seeds, Tensor[] wrt, int rows, bool create_graph, bool retain_graph)"
    " -> Tensor[]"
)


def _like_all(_: torch.Tensor, tensors: Sequence[torch.Tensor], __: bool) -> list[torch.Tensor]:
    return [torch.empty_like(tensor) for tensor in tensors]


def _updated(params: Sequence[torch.Tensor], *_: Any) -> list[torch.Tensor]:
    return [torch.empty_like(param) for param in params]


def _leaf(value: torch.Tensor, _: int) -> torch.Tensor:
    return torch.empty_like(value)


def _like_wrt(_: Any, __: Any, wrt: Sequence[torch.Tensor], *flags: bool) -> list[torch.Tensor]:
    return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in wrt]


def _rows_like_wrt(
    _: Any, __: Any, wrt: Sequence[torch.Tensor], rows: int, *flags: bool
) -> list[torch.Tensor]:
    return [tensor.new_empty((rows, *tensor.shape)) for tensor in wrt]


def _by_torch(
    outputs: Sequence[torch.Tensor],
    seeds: Sequence[torch.Tensor],
    wrt: Sequence[torch.Tensor],
    create_graph: bool,
    retain_graph: bool,
) -> list[torch.Tensor]:
    """The gradients that torch itself computes, on tensors without values: its errors, and its graph of the results."""
    if not any(output.requires_grad for output in outputs):
        with torch._C._AutoDispatchBelowAutograd():  # pyright: ignore[reportPrivateUsage]
            return list(GRADIENT(outputs, seeds, wrt, create_graph, retain_graph))
    differentiated: Any = torch.autograd.grad
    found = differentiated(
        outputs, wrt, seeds, retain_graph=retain_graph, create_graph=create_graph, allow_unused=True
    )
    with torch.set_grad_enabled(create_graph):
        return [
            torch.empty_like(value)
            if each is None
            else torch.clone(each, memory_format=torch.contiguous_format)
            for each, value in zip(found, wrt, strict=True)  # torch leaves some that are 0 undefined
        ]


def _rows_by_torch(
    outputs: Sequence[torch.Tensor],
    seeds: Sequence[torch.Tensor],
    wrt: Sequence[torch.Tensor],
    rows: int,
    create_graph: bool,
    retain_graph: bool,
) -> list[torch.Tensor]:
    """The gradients of the first row, as each row has them."""
    if not any(output.requires_grad for output in outputs):
        with torch._C._AutoDispatchBelowAutograd():  # pyright: ignore[reportPrivateUsage]
            return list(GRADIENT_ROWS(outputs, seeds, wrt, rows, create_graph, retain_graph))
    found = _by_torch(outputs, [seed[0] for seed in seeds], wrt, create_graph, retain_graph)
    with torch.set_grad_enabled(create_graph):
        return [each.expand(rows, *each.shape).clone() for each in found]


class _Same(torch.autograd.Function):
    """The identity, with a place of its own in torch's graph."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        with torch._C._AutoDispatchBelowAutograd():  # pyright: ignore[reportPrivateUsage]
            return INPUT(value)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """The cotangent itself."""
        return cotangents[0]


def _same(value: torch.Tensor) -> torch.Tensor:
    function: Any = _Same
    return function.apply(value)


for _name, _function in {
    "backward": _like_all,
    "update": _updated,
    "written": _leaf,
    "leaf": _leaf,
    "left": torch.empty_like,
    "input": torch.clone,
    "gradient": _like_wrt,
    "gradient_rows": _rows_like_wrt,
}.items():
    _library.impl(_name, _function, "CompositeExplicitAutograd")
    if _name not in ("gradient", "gradient_rows", "input"):
        _library.impl(_name, torch.library.fallthrough_kernel, "Autograd")  # their results are leaves
_library.impl("gradient", _by_torch, "Autograd")
_library.impl("gradient_rows", _rows_by_torch, "Autograd")
_library.impl("input", _same, "Autograd")

_ops: Any = torch.ops.aicf_train
_registry: Any = torch.library

INPUT: Any = _ops.input.default
"""The same value as an input of its own: gradients with respect to it do not count other uses of the value."""
GRADIENT: Any = _ops.gradient.default
"""The gradients of outputs, times seeds, with respect to any tensors; a graph of them if it is to be created."""
GRADIENT_ROWS: Any = _ops.gradient_rows.default
"""The same for each of so many rows of seeds, in the first dimension of these and of the results."""
BACKWARD: Any = _ops.backward.default
"""The gradients of a loss, one of each tensor; its graph is freed if it is not to be retained."""
UPDATE: Any = _ops.update.default
"""Parameters after a step of their optimizer, with these gradients; as they were if the step is not taken."""
WRITTEN: Any = _ops.written.default
"""The value that the body itself writes to the leaf of that number, mostly a parameter: from there on it is a leaf, too."""
LEAF: Any = _ops.leaf.default
"""A tensor that is a leaf from there on, as by `requires_grad_()`; its number follows the parameters' numbers."""
LEFT: Any = _ops.left.default
"""The gradient of a parameter that an earlier call has left."""


def _at_front(tensors: Sequence[torch.Tensor], dims: Sequence[int | None], rows: int) -> list[torch.Tensor]:
    """Return tensors with all rows of vmap in the first dimension."""
    return [
        tensor.expand(rows, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, dims, strict=True)
    ]


def _batched_gradient(
    info: Any,
    dims: Any,
    outputs: Sequence[torch.Tensor],
    seeds: Sequence[torch.Tensor],
    wrt: Sequence[torch.Tensor],
    create_graph: bool,
    retain_graph: bool,
) -> tuple[list[torch.Tensor], list[int]]:
    """Return the gradients of all rows: each row of the outputs depends on its own row alone of what differs from row to row."""
    of, by, to = dims[:3]
    rows: int = info.batch_size
    if not any(dim is not None for dim in (*of, *to)):
        found = GRADIENT_ROWS(
            outputs, _at_front(seeds, by, rows), list(wrt), rows, create_graph, retain_graph
        )
        return list(found), [0] * len(found)
    if any(dim is None for dim in to):
        return _row_by_row(dims, rows, outputs, seeds, wrt, GRADIENT, create_graph, retain_graph)
    given = _at_front(outputs, of, rows), _at_front(seeds, by, rows)
    return list(GRADIENT(*given, list(wrt), create_graph, retain_graph)), list(to)


def _batched_gradient_rows(
    info: Any,
    dims: Any,
    outputs: Sequence[torch.Tensor],
    seeds: Sequence[torch.Tensor],
    wrt: Sequence[torch.Tensor],
    inner: int,
    create_graph: bool,
    retain_graph: bool,
) -> tuple[list[torch.Tensor], list[int]]:
    """Return the gradients of `inner` rows for each row; if only the seeds differ these are rows of one kind."""
    of, by, to = dims[:3]
    rows: int = info.batch_size
    if not any(dim is not None for dim in (*of, *to)):
        flat = [each.flatten(0, 1) for each in _at_front(seeds, by, rows)]
        found = GRADIENT_ROWS(outputs, flat, list(wrt), rows * inner, create_graph, retain_graph)
        return [each.unflatten(0, (rows, inner)) for each in found], [0] * len(found)
    if any(dim is None for dim in to):

        def of_row(*given: Any) -> list[torch.Tensor]:
            return GRADIENT_ROWS(*given[:3], inner, *given[3:])

        return _row_by_row(dims, rows, outputs, seeds, wrt, of_row, create_graph, retain_graph, 1)
    of_all = [each.transpose(0, 1) for each in _at_front(seeds, by, rows)]
    found = GRADIENT_ROWS(_at_front(outputs, of, rows), of_all, list(wrt), inner, create_graph, retain_graph)
    return list(found), [dim + 1 for dim in to]


def _row_by_row(
    dims: Any,
    rows: int,
    outputs: Sequence[torch.Tensor],
    seeds: Sequence[torch.Tensor],
    wrt: Sequence[torch.Tensor],
    differentiate: Callable[..., Sequence[torch.Tensor]],
    create_graph: bool,
    retain_graph: bool,
    added: int = 0,
) -> tuple[list[torch.Tensor], list[int]]:
    """Return the gradient of each row with respect to tensors some of which all rows share, with `added` dimensions in front."""
    expect_few(rows)

    def row(tensors: Sequence[torch.Tensor], places: Sequence[int | None], number: int) -> list[torch.Tensor]:
        return [t if dim is None else t.select(dim, number) for t, dim in zip(tensors, places, strict=True)]

    each = [
        differentiate(
            row(outputs, dims[0], number),
            row(seeds, dims[1], number),
            list(wrt),
            create_graph,
            retain_graph or number < rows - 1,
        )
        for number in range(rows)
    ]
    found = [
        torch.stack([gradients[place] for gradients in each])
        if dim is None
        else torch.stack([gradients[place] for gradients in each]).sum(0)
        for place, dim in enumerate(dims[2])
    ]
    return found, [0 if dim is None else dim + added for dim in dims[2]]


def _batched_leaf(info: Any, dims: Any, value: torch.Tensor, number: int) -> tuple[torch.Tensor, int | None]:
    return LEAF(value, number), dims[0]


def _batched_input(info: Any, dims: Any, value: torch.Tensor) -> tuple[torch.Tensor, int | None]:
    return INPUT(value), dims[0]


_registry.register_vmap("aicf_train::leaf", _batched_leaf, lib=_library)
_registry.register_vmap("aicf_train::input", _batched_input, lib=_library)
_registry.register_vmap("aicf_train::gradient", _batched_gradient, lib=_library)
_registry.register_vmap("aicf_train::gradient_rows", _batched_gradient_rows, lib=_library)
