"""Gradients that a step computes with: `torch.autograd.grad`, and the tensors that the step makes leaves for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch

from aicf_mlir.frontend import gradient_hooks, source
from aicf_mlir.frontend.autograd_graph import edges_behind, leaves_of
from aicf_mlir.frontend.batched import made_leaf, unbatched
from aicf_mlir.frontend.functions import Functions
from aicf_mlir.frontend.markers import GRADIENT, GRADIENT_ROWS, INPUT, LEAF
from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.frontend.types import has_numbers
from aicf_mlir.ir.locations import SourceLocation

OF_GRAD = (
    *("outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "only_inputs", "allow_unused"),
    *("is_grads_batched", "materialize_grads"),
)
"""The arguments of `torch.autograd.grad()`."""


AGAIN = "the step takes a gradient through it itself, where torch calls it once more"
"""Why a checkpointed function that writes cannot be followed there."""

NONE = torch.empty(0, device="cpu")
"""It stands for a leaf that the user's code does not know."""


class InnerGradients:
    """Leaves that a step makes, and gradients that it takes, while it is traced."""

    functions: Functions
    without_gradient: list[SourceLocation | None]
    """The lines under `no_grad` that cut a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.twins: dict[int, torch.Tensor] = {}
        """The tensor that replaces another one, by the id of that: a leaf, say, that was none before."""
        self.made_leaves: list[torch.Tensor] = []
        self._replaced_by_leaves: list[torch.Tensor] = []
        """The tensors that leaves replace: they live, so that no other tensor gets their id."""

    def traced(self, tree: Any) -> Any:
        """Return nested tuples, lists and dictionaries with the tensors that replace those in it."""
        if isinstance(tree, torch.Tensor):
            return self.twins.get(id(tree), tree)
        if type(tree) in (tuple, list):
            return type(tree)(map(self.traced, tree))
        if type(tree) is dict:
            return {key: self.traced(value) for key, value in cast(dict[Any, Any], tree).items()}
        return tree

    def leaf(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a leaf that replaces a tensor without a gradient from here on, as `requires_grad_()` makes it one."""
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            if unbatched(tensor).requires_grad:
                return tensor
            leaf = self.new_leaf(tensor)
        self.twins[id(tensor)] = leaf
        self._replaced_by_leaves.append(tensor)
        return leaf

    def new_leaf(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a leaf with the value of a tensor."""
        leaf = made_leaf(source.call_at(source.here(), LEAF, tensor, len(self.made_leaves)))
        self.made_leaves.append(leaf)
        return leaf

    def new_input(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the same value, with respect to which gradients do not count other uses of the value."""
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            if not has_numbers(tensor):
                return tensor
            if unbatched(tensor).requires_grad:
                return source.call_at(source.here(), INPUT, tensor)
            number = len(self.made_leaves)
            self.made_leaves.append(NONE)
            return made_leaf(source.call_at(source.here(), LEAF, tensor, number))

    def gradient_of(
        self,
        outputs: Any,
        inputs: Any,
        grad_outputs: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        only_inputs: bool = True,
        allow_unused: bool | None = None,
        is_grads_batched: bool = False,
        materialize_grads: bool = False,
    ) -> tuple[torch.Tensor | None, ...]:
        """Handle `torch.autograd.grad(…)`: torch decides which inputs have a gradient, and what is an error."""
        del only_inputs
        location, of, asked = source.here(), as_list(outputs), as_list(inputs)
        retain = create_graph if retain_graph is None else retain_graph
        given = as_list(grad_outputs) or [None] * len(of)
        rows = next((each.shape[0] for each in given if each is not None), 0) if is_grads_batched else None
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            seeds = [self._seed(output, seed, location, rows) for output, seed in zip(of, given, strict=True)]
            recorded = [unbatched(output) for output in of]
            gradient_hooks.expect_none([*map(unbatched, asked)], self.functions, location)
            for output in recorded:
                self.functions.expect_known(output)
                self.functions.checkpoints.expect_none([output], AGAIN)
                if create_graph:
                    self.functions.expect_again(output, location)
            edges = {edge for output in recorded for edge in edges_behind(output)}
            leaves = {id(leaf) for output in recorded for leaf in leaves_of(output)}
            reached = [
                not each.requires_grad or id(each) in leaves or (each.grad_fn, each.output_nr) in edges
                for each in map(unbatched, asked)
            ]
            if not all(reached) and not (allow_unused or materialize_grads):
                raise trace_error(
                    f"one of the inputs of torch.autograd.grad{quoted(location)} is not used in what is differentiated; leave it"
                    " out, or pass allow_unused=True",
                    location,
                )
            wrt = [each for each, is_reached in zip(asked, reached, strict=True) if is_reached]
            op, in_rows = (GRADIENT, ()) if rows is None else (GRADIENT_ROWS, (rows,))
            found = iter(
                source.call_at(location, op, of, seeds, wrt, *in_rows, create_graph, retain) if wrt else ()
            )
            return tuple(
                next(found)
                if is_reached
                else each.new_zeros((*in_rows, *each.shape))
                if materialize_grads
                else None
                for each, is_reached in zip(asked, reached, strict=True)
            )

    def _seed(
        self,
        output: torch.Tensor,
        seed: torch.Tensor | None,
        location: SourceLocation | None,
        rows: int | None,
    ) -> torch.Tensor:
        """Return the gradient of an output: 1 where it is one number and none is given; all `rows` of them."""
        wanted = [*([] if rows is None else [rows]), *output.shape]
        if seed is None:
            if output.numel() != 1:
                raise trace_error(
                    f"torch.autograd.grad{quoted(location)} needs grad_outputs for an output of shape {list(output.shape)}",
                    location,
                )
            return source.call_at(location, output.detach().new_ones, wanted)
        if list(seed.shape) != wanted:
            raise trace_error(
                f"torch.autograd.grad{quoted(location)} got grad_outputs of shape {list(seed.shape)} for an output of shape"
                f" {list(output.shape)}",
                location,
            )
        return seed if seed.dtype == output.dtype else source.call_at(location, seed.to, output.dtype)


def makes_leaf(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """True for `x.requires_grad_()` and `x.requires_grad = True`."""
    if name == "requires_grad_":
        return all(args[1:]) and all(kwargs.values())
    return name == "requires_grad" and args[1:] == (True,)


def as_list(given: Any) -> list[Any]:
    """Return one tensor, several or none as a list."""
    if given is None:
        return []
    return [given] if isinstance(given, torch.Tensor) else list(given)
