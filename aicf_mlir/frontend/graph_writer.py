"""A mode of torch that writes the ops that run on tensors without values as nodes of a graph."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,  # pyright: ignore[reportPrivateUsage]
)
from torch.utils._pytree import tree_leaves, tree_map

from aicf_mlir.frontend.aten_table import TABLE
from aicf_mlir.frontend.refused import Refused

TORCH: Any = vars(torch)["_C"]
EXCLUDED: Any = TORCH._ExcludeDispatchKeyGuard
VIEWS: Any = TORCH.DispatchKeySet(TORCH.DispatchKey.ADInplaceOrView)
"""What torch's dispatcher leaves out while ops are written."""

KEPT = ("stack_trace", "nn_module_stack", "from_node")
"""What a node that is written for another one keeps of it."""


def without_values(
    shape: Sequence[int], dtype: torch.dtype, device: torch.device, fake_mode: Any
) -> torch.Tensor:
    """Return a new dense tensor without values, which no other mode sees."""
    with _disable_current_modes(), fake_mode:
        return torch.empty(tuple(shape), dtype=dtype, device=device)


class GraphWriter(TorchDispatchMode):
    """Writes the ops that run on tensors without values to `graph`."""

    def __init__(self, graph: Graph, fake_mode: Any):
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.graph = graph
        self.meta: dict[str, Any] = {}
        """The line and the layer of the ops that follow."""
        self._fake_mode = fake_mode
        self._nodes: dict[int, tuple[torch.Tensor, Node]] = {}
        """The node of each tensor, which is kept: its id stays its own."""
        self._made: dict[Any, torch.Tensor] = {}
        """The results of ops without operands: each is written once."""

    def for_node(self, node: Node) -> None:
        """Give the ops that follow the line and the layer of a node."""
        self.meta = {key: node.meta[key] for key in KEPT if key in node.meta}

    @contextmanager
    def writing(self) -> Generator[None]:
        """Write what runs inside. It runs below autograd, which would note views: composites arrive whole."""
        with TORCH._AutoDispatchBelowAutograd(), EXCLUDED(VIEWS), self:
            yield

    def is_taken_apart(self, func: Any) -> bool:
        """True for an op that is written as those that it consists of, if it does: one without a row in the table."""
        return func.namespace == "aten" and str(func) not in TABLE

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with self:
            if self.is_taken_apart(func) and (whole := func.decompose(*args, **kwargs)) is not NotImplemented:
                return whole
        return self._ran(func, args, kwargs)

    def _ran(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run an op that is not taken apart, and write it."""
        if torch.Tag.inplace_view in func.tags:
            return self._viewed(func, args, kwargs)
        with self._fake_mode:
            made = func(*args, **kwargs)
        tensors = [each for each in tree_leaves((args, kwargs, made)) if isinstance(each, torch.Tensor)]
        return self._written(func, made, args, kwargs) if tensors and func.namespace != "prim" else made

    def _viewed(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
        """Write an op such as `squeeze_`, which makes a tensor another view of its elements, as the op without underscore."""
        seen: torch.Tensor = args[0]
        before = self.node(seen)
        before.meta["val"] = without_values(seen.shape, seen.dtype, seen.device, self._fake_mode)
        plain = getattr(getattr(torch.ops.aten, func._opname.removesuffix("_")), func._overloadname)
        node = self.graph.call_function(plain, tree_map(self._operand, tuple(args)), kwargs)
        with self._fake_mode:
            func(*args, **kwargs)
        node.meta = {**self.meta, "val": seen}
        self.name(seen, node)
        return seen

    def like(self, node: Node) -> torch.Tensor:
        """Return a tensor without values for the value of `node`."""
        traced: torch.Tensor = node.meta["val"]
        tensor = without_values(traced.shape, traced.dtype, traced.device, self._fake_mode)
        self.name(tensor, node)
        return tensor

    def _written(self, func: Any, made: Any, args: Any, kwargs: Any) -> Any:
        if func._schema.is_mutable:
            raise Refused(f"{func}, which writes to a tensor,")
        key = None
        if not any(isinstance(each, torch.Tensor) for each in tree_leaves((args, kwargs))):
            key = None if torch.Tag.nondeterministic_seeded in func.tags else str((func, args, kwargs))
            if key in self._made:
                return self._made[key]
        operands = tree_map(self._operand, (tuple(args), kwargs))
        node = self.graph.call_function(func, *operands)
        node.meta = {**self.meta, "val": made}
        if isinstance(made, torch.Tensor):
            self.name(made, node)
            if key is not None:
                self._made[key] = made
        else:
            for i, each in enumerate(made):
                part = self.graph.call_function(getitem, (node, i))
                part.meta = {**self.meta, "val": each}
                self.name(each, part)
        return made

    def _operand(self, value: Any) -> Any:
        """A tensor as its node."""
        return self.node(value) if isinstance(value, torch.Tensor) else value

    def name(self, tensor: torch.Tensor, node: Node) -> None:
        """Note that a real tensor is the value of `node`."""
        self._nodes[id(tensor)] = tensor, node

    def node(self, tensor: torch.Tensor) -> Node:
        """Return the node of a tensor."""
        return self._nodes[id(tensor)][1]
