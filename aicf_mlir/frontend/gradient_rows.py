"""Gradients of one value for many rows of seeds, as of `jacrev` and `is_grads_batched`: the rows become a dimension.

The graph of a step has them as one op. Few rows are gradients of their own, which share the forward. For many rows, the ops
between the inputs and the differentiated values are written again by torch's rules for vmap: the inputs are repeated for
each row, so that one gradient has all rows.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from operator import getitem
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves, tree_map

from aicf_mlir.errors import AicfError
from aicf_mlir.frontend.batched import (
    FUNCTORCH,
    MOST_ROWS,
    PREDISPATCH,
    at_this_level,
    is_batched,
    levels_restored,
    unbatched,
)
from aicf_mlir.frontend.custom_gradients import ARRIVING, CUSTOM_GRADIENT
from aicf_mlir.frontend.cut import CUT
from aicf_mlir.frontend.graph_walk import needed_by
from aicf_mlir.frontend.graph_writer import GraphWriter
from aicf_mlir.frontend.markers import GRADIENT, GRADIENT_ROWS, LEAF
from aicf_mlir.frontend.quiet import quiet
from aicf_mlir.frontend.refused import Refused
from aicf_mlir.frontend.source import of_stack_trace, quoted, trace_error
from aicf_mlir.frontend.torch_errors import explained
from aicf_mlir.frontend.types import has_numbers

FEW = 16
"""Up to so many rows are gradients of their own: on a CPU a step is 1.5 times as fast, since the forward is not repeated, but
compiling takes 0.03 s a row more, for a network of three layers.
"""

aten: Any = torch.ops.aten

RULES: Mapping[Any, Any] = import_module("torch._decomp").decomposition_table
"""Torch's rules that write an op as others."""

NO_RULE = re.compile(r"hit the vmap fallback|[Bb]atching rule not implemented|^vmap: ")
"""The messages of torch's errors for an op that has no rule for vmap, or none for these arguments."""

CUTS = (CUT, LEAF, aten.detach.default)
"""Ops that no gradient flows through."""


def with_rows(program: ExportedProgram) -> None:
    """Replace the gradients of rows in a functional graph, in place. Raises TraceError if there are too many to be written
    one after the other, and an op between has no form for all rows; and for what else torch cannot trace.
    """
    graph = program.graph
    for node in graph.find_nodes(op="call_function", target=GRADIENT_ROWS):
        if node.users:
            _Rows(graph, node).replace()
        graph.erase_node(node)
    program.graph_module.recompile()


@dataclass
class _Rows:
    """One op with rows."""

    graph: Graph
    op: Node
    last: int = 0
    """The last number of a function with its own backward that is written again."""

    def __post_init__(self) -> None:
        self.outputs, self.seeds, self.wrt = cast(Sequence[list[Node]], self.op.args[:3])
        self.rows, self.create_graph = cast(tuple[int, bool], self.op.args[3:5])
        self.order: list[Node] = []
        for node in self.graph.nodes:
            if node is self.op:
                break
            self.order.append(node)
        values = tree_leaves([node.meta.get("val") for node in self.order])
        fake_mode = next(each.fake_mode for each in values if hasattr(each, "fake_mode"))
        self.fake_mode = fake_mode
        self._begin()

    def _begin(self) -> None:
        self.writer = GraphWriter(self.graph, self.fake_mode)
        self.writer.for_node(self.op)

    def replace(self) -> None:
        """Write the gradients in front of the op, and let its readers read them."""
        with self.graph.inserting_before(self.op):
            try:
                found = self._one_by_one() if self.rows <= FEW else self._together_if_possible()
            except AicfError:
                raise
            except Exception as error:
                raise explained(error, of_stack_trace(self.op.meta.get("stack_trace"))) from error
        for part in list(self.op.users):
            part.replace_all_uses_with(self.writer.node(found[cast(int, part.args[1])]))
            self.graph.erase_node(part)

    def _together_if_possible(self) -> list[torch.Tensor]:
        """Return all rows together; if an op has no form for that, one by one."""
        try:
            return self._together()
        except Refused as error:
            self._expect_few(str(error))
        while self.op.prev is not self.order[-1]:
            self.graph.erase_node(self.op.prev)
        self._begin()
        return self._one_by_one()

    def _expect_few(self, why: str) -> None:
        if self.rows > MOST_ROWS:
            location = of_stack_trace(self.op.meta.get("stack_trace"))
            raise trace_error(
                f"the step takes {self.rows} gradients of one value{quoted(location)}, which cannot be taken together ({why}),"
                f" and at most {MOST_ROWS} are taken one after the other; use torch.func.jacfwd where there are fewer inputs than"
                " outputs",
                location,
            )

    def _one_by_one(self) -> list[torch.Tensor]:
        with self.writer.writing():
            outputs, seeds, wrt = (
                list(map(self.writer.like, n)) for n in (self.outputs, self.seeds, self.wrt)
            )
            each = [
                GRADIENT(outputs, [seed.select(0, row) for seed in seeds], wrt, self.create_graph, True)
                for row in range(self.rows)
            ]
            return [torch.stack(list(parts)) for parts in zip(*each, strict=True)]

    def _together(self) -> list[torch.Tensor]:
        def of_row(*seeds: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return self._gradients(self.outputs, seeds, self.wrt, self.create_graph, {})

        with refusing(), quiet(), levels_restored(), without_loops(), self.writer.writing():
            return list(torch.vmap(of_row)(*map(self.writer.like, self.seeds)))

    def _gradients(
        self,
        outputs: Sequence[Node],
        seeds: Sequence[torch.Tensor],
        wrt: Sequence[Node],
        create_graph: bool,
        known: Mapping[Node, Any],
    ) -> tuple[torch.Tensor, ...]:
        """Return the gradients of a row, with respect to tensors of its own where all rows share one; `known` are values of
        the row.
        """
        shared = {node for node in wrt if not is_row(known.get(node))}
        first = shared - self._reached(shared)
        own = {node: at_this_level(self.writer.like(node)) for node in wrt if node in first}
        values = self._evaluated([*outputs, *wrt], own, known)
        of, by = values[: len(outputs)], values[len(outputs) :]
        return tuple(GRADIENT(of, list(seeds), by, create_graph, True))

    def _evaluated(
        self, nodes: Sequence[Node], given: Mapping[Node, Any], known: Mapping[Node, Any]
    ) -> list[torch.Tensor]:
        """Return the values of nodes where others are `given`: all between is computed again, the rest is `known` or shared."""
        between = self._between(given, nodes)
        values = {node: value for node, value in known.items() if node not in between} | dict(given)
        numbers = dict[int, int]()

        def value(node: Node) -> Any:
            if node not in values:
                values[node] = self.writer.like(node)
            return values[node]

        for node in self.order:
            if node not in between or node in given:
                continue
            self.writer.for_node(node)
            args, kwargs = cast(Any, map_arg((node.args, node.kwargs), value))
            target: Any = node.target
            if target is getitem:
                values[node] = args[0][args[1]]
                continue
            if torch.Tag.nondeterministic_seeded in target.tags:
                raise Refused(f"{target} draws random numbers")
            if target is GRADIENT and not all(map(is_row, args[2])):
                outputs, _, wrt, create_graph, _ = cast(Any, node.args)
                values[node] = self._gradients(outputs, args[1], wrt, create_graph, values)
                continue
            if target is ARRIVING:
                result, number, *rest = args
                args = (at_this_level(result), self._renumbered(number, numbers), *rest)
            elif target is CUSTOM_GRADIENT:
                results, *rest, number, once = args
                args = (list(map(at_this_level, results)), *rest, self._renumbered(number, numbers), once)
            values[node] = by_rule(target, args, kwargs, self.rows)
        return list(map(value, nodes))

    def _between(self, given: Iterable[Node], nodes: Sequence[Node]) -> set[Node]:
        """Return what is computed from given nodes, and leads to others; of a function with its own backward all of that."""
        needed, arriving = needed_by(nodes), set[Node]()
        while True:
            between = (self._reached({*given, *arriving}) | arriving) & needed
            functions = [node for node in between if node.target is CUSTOM_GRADIENT]
            known = len(arriving)
            arriving.update(each for node in functions for each in cast(Sequence[Node], node.args[2]))
            if len(arriving) == known:
                return between

    def _reached(self, sources: Iterable[Node]) -> set[Node]:
        """Return the nodes through which gradients flow to sources."""
        reached, found = set(sources), set[Node]()
        for node in self.order:
            if carries_gradient(node) and any(operand in reached for operand in node.all_input_nodes):
                reached.add(node)
                found.add(node)
        return found

    def _renumbered(self, number: int, numbers: dict[int, int]) -> int:
        """Return the number of a function that is written again, one that no other has."""
        if number not in numbers:
            taken = [cast(int, n.args[1]) for n in self.graph.find_nodes(op="call_function", target=ARRIVING)]
            numbers[number] = self.last = max([*taken, self.last]) + 1
        return numbers[number]


def selected(self: torch.Tensor, src: torch.Tensor, dim: int, index: int) -> torch.Tensor:
    """Do `select_scatter`. Torch's rule for vmap writes each number several times, and the gradient of it counts them all."""
    at = index % self.shape[dim]
    return aten.slice_scatter(self, src.unsqueeze(dim), dim, at, at + 1)


def copied(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Do `copy`, for which torch has no rule."""
    del non_blocking
    return src.to(self.dtype).expand(self.shape)


INSTEAD: Mapping[Any, Any] = {aten.select_scatter.default: selected, aten.copy.default: copied}
"""Functions that are computed in place of ops."""


def by_rule(op: Any, args: Any, kwargs: Any, rows: int) -> Any:
    """Return the results of an op for all rows: by torch's rule for vmap, by those of the ops that it consists of, or by one
    op for each row.
    """
    try:
        with refusing():
            return INSTEAD.get(op, op)(*args, **kwargs)
    except Refused:
        if (rule := RULES.get(op)) is not None:
            return rule(*args, **kwargs)
        if rows > MOST_ROWS:
            raise
    each = [op(*tree_map(partial(row_of, row), args), **kwargs) for row in range(rows)]
    if isinstance(each[0], torch.Tensor):
        return stacked(each)
    return tuple(stacked(parts) for parts in zip(*each, strict=True))


def row_of(row: int, value: Any) -> Any:
    """Return a row of a tensor that has rows."""
    if not is_row(value):
        return value
    return unbatched(value).select(FUNCTORCH.maybe_get_bdim(value), row)


def stacked(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the tensor with these rows, inside of vmap."""
    return PREDISPATCH._add_batch_dim(torch.stack(list(rows)), 0, FUNCTORCH.maybe_current_level())


@contextmanager
def refusing() -> Generator[None]:
    """Raise Refused for an op that torch has no rule for."""
    try:
        yield
    except RuntimeError as error:
        if not NO_RULE.search(str(error)):
            raise
        raise Refused(str(error).split("\n")[0]) from error


@contextmanager
def without_loops() -> Generator[None]:
    """Let vmap raise an error for an op that has no rule, in place of a loop over the rows."""
    before = FUNCTORCH._is_vmap_fallback_enabled()
    FUNCTORCH._set_vmap_fallback_enabled(False)
    try:
        yield
    finally:
        FUNCTORCH._set_vmap_fallback_enabled(before)


def is_row(value: object) -> bool:
    """True for a tensor that differs from row to row."""
    return isinstance(value, torch.Tensor) and is_batched(value)


def carries_gradient(node: Node) -> bool:
    """True for an op through which a gradient may flow."""
    if node.target in CUTS or node.op != "call_function":
        return False
    if node.target is GRADIENT and not node.args[3]:
        return False
    value = node.meta.get("val")
    return not isinstance(value, torch.Tensor) or has_numbers(value)
