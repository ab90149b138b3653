"""The grad mode in which each op of a step was called, and the parameters that were frozen there: they are noted while
tracing, since an export does not keep all of it.

An export has a block for `no_grad` and `enable_grad`, except inside of `torch.autocast`. `inference_mode` is `no_grad` while a
step is traced. Once each node has its grad mode, the blocks become plain nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from operator import getitem
from threading import get_ident
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node, traceback
from torch.fx.node import map_arg

BLOCK: Any = torch.ops.higher_order.wrap_with_set_grad_enabled
"""The op that an export makes of a block: its operands are the grad mode, the graph inside, and the graph's operands."""

INSIDE: Any = torch._C  # pyright: ignore[reportPrivateUsage]
"""Where torch looks up what `torch.inference_mode` enters."""

MODE = "aicf_records_gradients"
"""The annotation of a node that is True if torch records gradients there."""


FROZEN = "aicf_frozen"
"""The annotation of a node that has the ids of the user's parameters that require no gradient there."""

_frozen_now: ContextVar[Collection[int]] = ContextVar("frozen_now", default=())
"""The ids of the parameters that require no gradient now."""


class _Annotations(dict[str, Any]):
    """Annotations that torch copies to each node it makes, and restores from a copy after adding its own."""

    def __copy__(self) -> _Annotations:
        enabled = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        return _Annotations({**self, MODE: enabled, FROZEN: frozenset(_frozen_now.get())})


@contextmanager
def noted(frozen: Collection[int]) -> Generator[None]:
    """Trace a step inside: each of its nodes gets the grad mode in which it was called, and what is in `frozen` then."""
    meta, outside = traceback.current_meta, _frozen_now.set(frozen)
    try:
        with traceback.preserve_node_meta(), traceback.annotate({}):
            meta["custom"] = _Annotations(meta["custom"])
            yield
    finally:
        _frozen_now.reset(outside)


class _NoGradient:
    """What `torch.inference_mode(mode)` enters while a step is traced: tensors made inside have versions, as any."""

    def __init__(self, mode: bool):
        self._inside: Any = torch.no_grad() if mode else torch.enable_grad()

    def __enter__(self) -> None:
        self._inside.__enter__()

    def __exit__(self, *raised: object) -> None:
        self._inside.__exit__(*raised)


@contextmanager
def without_inference() -> Generator[None]:
    """Let `torch.inference_mode` be `no_grad` in this thread: writes to tensors without versions could not be followed."""
    thread, theirs = get_ident(), INSIDE._InferenceMode

    def chosen(mode: bool) -> Any:
        return _NoGradient(mode) if get_ident() == thread else theirs(mode)

    INSIDE._InferenceMode = chosen
    try:
        yield
    finally:
        INSIDE._InferenceMode = theirs


def records_gradients(node: Node) -> bool:
    """True if torch records gradients where `node` was called."""
    return bool(cast(dict[str, Any], node.meta.get("custom") or {}).get(MODE, True))


@dataclass
class Freezes:
    """Parameters that are frozen and unfrozen while a graph runs again, as they were when it was traced."""

    leaves: Mapping[int, torch.Tensor]
    """The tensors that require a gradient at the beginning, by the ids of the user's parameters."""
    _frozen: frozenset[int] = frozenset()

    def reach(self, node: Node) -> None:
        """Freeze what was frozen where `node` was called, and nothing else."""
        annotations = cast(dict[str, Any], node.meta.get("custom") or {})
        self.set(annotations.get(FROZEN, self._frozen))

    def set(self, frozen: frozenset[int]) -> None:
        """Freeze these, and nothing else."""
        for own in self.leaves.keys() & (frozen ^ self._frozen):
            self.leaves[own].requires_grad_(own not in frozen)
        self._frozen = frozen


def inline_grad_modes(module: GraphModule) -> None:
    """Replace each block of a grad mode by its nodes, in `module` and in the graphs inside it."""
    for inner in list(module.children()):
        if isinstance(inner, GraphModule):
            inline_grad_modes(inner)
    for node in module.graph.nodes:  # torch forgets users while it makes the blocks
        for operand in node.all_input_nodes:
            operand.users.setdefault(node)
    for node in module.graph.find_nodes(op="call_function", target=BLOCK):
        _inline(module, node)
    module.recompile()


def _inline(module: GraphModule, block: Node) -> None:
    _, inside, *operands = cast(tuple[bool, Node, *tuple[Node, ...]], block.args)
    body = cast(GraphModule, getattr(module, str(inside.target)))
    values: dict[Node, Any] = dict(zip(body.graph.find_nodes(op="placeholder"), operands, strict=True))
    returned: Any = ()
    with module.graph.inserting_before(block):
        for node in body.graph.nodes:
            if node.op == "output":
                returned = map_arg(node.args[0], cast(Any, values.__getitem__))
            elif node.op != "placeholder":
                values[node] = copied = module.graph.node_copy(node, values.__getitem__)
                if node.op == "get_attr":
                    copied.target = _moved(module, getattr(body, str(node.target)), str(node.target))
    for user in list(block.users):
        if user.target is not getitem:
            raise TypeError(f"expected the results of {block} one by one, got {user.format_node()}")
        user.replace_all_uses_with(returned[cast(int, user.args[1])])
        module.graph.erase_node(user)
    module.graph.erase_node(block)
    if not inside.users:
        module.graph.erase_node(inside)


def _moved(module: GraphModule, value: Any, name: str) -> str:
    """Return a name under which `module` has `value` from now on."""
    free = next(
        each
        for number in range(len(dir(module)) + 1)
        if not hasattr(module, each := f"{name}_of_block{number or ''}")
    )
    setattr(module, free, value)
    return free
