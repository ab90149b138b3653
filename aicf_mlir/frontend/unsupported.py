"""An op that the front end cannot express: torch's decomposition as a second try, else one error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, Self, TypeVar

import torch
from torch._decomp import get_decompositions  # pyright: ignore[reportUnknownVariableType]
from torch.export import ExportedProgram, default_decompositions
from torch.export.graph_signature import OutputKind
from torch.fx import Node

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend.advice import advice_for
from aicf_mlir.frontend.aten_table import TABLE
from aicf_mlir.frontend.complex_graph import in_real_numbers, is_complex
from aicf_mlir.frontend.effects import EFFECT
from aicf_mlir.frontend.export import decompose, is_functional
from aicf_mlir.frontend.gradient_rows import with_rows
from aicf_mlir.frontend.refused import Forbidden, Refused
from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.frontend.torch_errors import EXCHANGES
from aicf_mlir.frontend.types import describe
from aicf_mlir.ir.locations import SourceLocation

Result = TypeVar("Result")


class OfProgram(Protocol):
    """An object that holds an exported program."""

    @property
    def program(self) -> ExportedProgram:
        """The program."""
        ...

    def with_program(self, program: ExportedProgram) -> Self:
        """Return the same with another program."""
        ...

    def location(self, node: Node) -> SourceLocation | None:
        """Return the user's line of a node."""
        ...


Graph = TypeVar("Graph", bound=OfProgram)

aten: Any = torch.ops.aten

UNLISTED = (aten.upsample_nearest2d.vec, aten.upsample_bilinear2d.vec)
"""Ops that torch decomposes, but keeps whole in an export by default; others of their kind are in its list."""

NO_FORM = "there is no such op here yet"
"""The reason for an op that has no row in the table."""

OF_A_LIBRARY = (
    "its body is none that a trace can see; define it by torch.library.custom_op, whose Python is traced"
)
"""The reason for an op of another library than torch."""

PAGE = "docs/ops.md"
"""The page that lists all supported ops."""

CHECKS = "torch's rule for it looks at values while it runs"

RANDOM = "it draws random numbers; pass random tensors in the batch instead"


class UnsupportedNode(Exception):
    """An op outside the table, or one whose row refuses its arguments; torch may still decompose it."""

    def __init__(self, node: Node, reason: str, forbidden: bool, location: SourceLocation | None):
        super().__init__(reason)
        self.node = node
        self.target: Any = node.target
        self.advice = advice_for(op_name(node))
        self.reason = reason or (RANDOM if is_random(node) else "")
        self.may_decompose = not forbidden and not is_random(node)
        self.location = location
        self.operands = ", ".join(describe(operand.meta.get("val")) for operand in node.all_input_nodes)
        self.what = f"{op_name(node)}({self.operands})"

    def error(self, reason: str = "") -> TraceError:
        """Return the error for the user: the op, its shapes, the line, the reason, and a replacement or the page with
        all ops.
        """
        namespace = getattr(self.target, "namespace", "aten")
        if "c10d" in namespace:
            return trace_error(f"the step {EXCHANGES.format(line=quoted(self.location))}", self.location)
        is_torchs = namespace in ("aten", "prim", "prims")
        why = self.reason or reason or (NO_FORM if is_torchs else OF_A_LIBRARY)
        instead = f"; write instead: {self.advice}" if self.advice else self._others()
        return trace_error(
            f"{self.what} is not supported{quoted(self.location)}: {why}{instead}", self.location
        )

    def _others(self) -> str:
        """Return the pointer to the page of all ops; empty if the arguments of an op are refused."""
        return "" if self.reason or op_name(self.node) in TABLE else f"; {PAGE} has all that there are"


def with_decompositions(exported: Graph, build: Callable[[Graph], Result]) -> Result:
    """Return `build(exported)`, of the graph as exported if possible: that is several times faster.

    Otherwise torch makes it functional and decomposes its simplest composites: the ones without a rule, which are views
    like swapaxes. An op that is unsupported is decomposed by torch's rule for it, with those that have no row, also inside of
    rules, and `build` tries again. Raises TraceError once an unsupported op has no rule.
    """
    is_whole, refused, tried = is_functional(exported.program), list[UnsupportedNode](), list[Any]()
    if not is_whole:
        exported = exported.with_program(decompose(exported.program, with_effects(exported.program)))

    with_rows(exported.program)

    def refuse(node: Node, why: Refused) -> None:
        raise UnsupportedNode(node, str(why), isinstance(why, Forbidden), exported.location(node))

    while True:
        try:
            return build(exported.with_program(in_real_numbers(exported.program, refuse)))
        except UnsupportedNode as unsupported:
            refused.append(unsupported)
        target = refused[-1].target
        rules = decompositions(target) if refused[-1].may_decompose else {}
        if target in rules and target not in tried:
            tried.append(target)
            others = unlisted(exported, rules, [before.target for before in refused])
            inside = [] if has_complex(exported.program) else without_a_row(rules)
            program = decompose(
                exported.program, {t: rules[t] for t in (target, *(o.target for o in others), *inside)}
            )
            if (others or inside) and has_checks(program):
                others = []
                program = decompose(exported.program, {target: rules[target]})
            if has_checks(program):
                raise refused[-1].error(CHECKS)
            refused[-1:-1] = others
            exported = exported.with_program(program)
        elif is_whole:
            exported = exported.with_program(decompose(exported.program, {}))
            refused.pop()
        else:
            raise explain(refused)
        is_whole = False


def unlisted(exported: OfProgram, rules: Mapping[Any, Any], known: Sequence[Any]) -> list[UnsupportedNode]:
    """Return the first node of each op that has no row in the table but a rule of torch's, `known` ones and complex
    ones left out.
    """
    first = {
        node.target: node
        for node in reversed(exported.program.graph.nodes)
        if node.op == "call_function"
        and node.target in rules
        and op_name(node) not in TABLE
        and not any(map(is_complex, (node, *node.all_input_nodes)))
    }
    nodes = [node for target, node in first.items() if target not in known and not is_random(node)]
    return [UnsupportedNode(node, "", False, exported.location(node)) for node in nodes]


def has_complex(program: ExportedProgram) -> bool:
    """True if a value of the program is complex: ops of such values are taken apart in another way."""
    return any(map(is_complex, program.graph.nodes))


def without_a_row(rules: Mapping[Any, Any]) -> list[Any]:
    """Return the ops of `rules` that have no row in the table; what draws random numbers is left out."""
    return [op for op in rules if str(op) not in TABLE and torch.Tag.nondeterministic_seeded not in op.tags]


def has_checks(program: ExportedProgram) -> bool:
    """True if a rule of torch has added ops that check values while they run, which torch puts in an order of its own."""
    return any(spec.kind is OutputKind.TOKEN for spec in program.graph_signature.output_specs)


def with_effects(program: ExportedProgram) -> dict[Any, Any]:
    """Return the rules for ops that write to an operand without declaring it: torch would keep them whole, and drop
    unused ones.
    """
    rules = decompositions()
    targets = [node.target for node in program.graph.nodes if node.meta.get(EFFECT)]
    return {target: rules[target] for target in targets if target in rules}


def decompositions(wanted: Any = None) -> dict[Any, Any]:
    """Return torch's rule for every op that has one; read again if `wanted` has none, since it may be registered late."""
    if wanted is not None and wanted not in _decompositions():
        _decompositions.cache_clear()
    return _decompositions()


@cache
def _decompositions() -> dict[Any, Any]:
    return {**default_decompositions(), **get_decompositions(UNLISTED)}


def explain(refused: list[UnsupportedNode]) -> TraceError:
    """Return the error for the last refused op, or for the op that the user wrote if that was decomposed."""
    last = refused[-1]
    written = next(each for each in refused if origin(each.node) == origin(last.node))
    if written is last:
        return last.error()
    return written.error(decomposed_into(last.what) + (f": {last.reason}" if last.reason else ""))


def origin(node: Node) -> str:
    """Return the name of this node's original in the graph, before torch decomposed any op."""
    name, sources = node.name, node.meta.get("from_node")
    while sources:
        name, sources = sources[-1].name, sources[-1].from_node
    return name


def decomposed_into(what: str) -> str:
    """Return the remaining reason if torch's rule for an op leads to another that is not supported."""
    return f"torch decomposes it into {what}, which is not supported either"


def op_name(node: Node) -> str:
    """Return the name as `aten.add.Tensor`."""
    return str(node.target)


def is_random(node: Node) -> bool:
    """True if the op draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
