"""The first step of an optimizer compared with a later one: where they are the same function, this shows how each state
begins.

The first step makes its states, and the later one is given them. So both graphs are walked from their results at once.
Each state of the later one stands for the value that the first one has in that place. An optimizer of which this does not
tell must have taken its first step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.traced_optimizer.graph import Number, OptimizerGraph, StateKey

aten: Any = torch.ops.aten
COPIES = (aten.clone.default, aten.alias.default)
"""Ops whose result is their argument."""
FACTORIES = tuple(
    getattr(aten, name).default
    for name in ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
)
"""Ops that use only the shape and the type of their first argument."""
READS = (aten.item.default, aten._local_scalar_dense.default)

Initial = Callable[[Sequence[torch.Tensor]], torch.Tensor]
"""The beginning of a state, as a function of the parameters."""


class Different(Exception):
    """The two steps are not the same function; it names a node of the later one, if known."""

    def __init__(self, node: object):
        super().__init__()
        self.node = node if isinstance(node, Node) else None


@dataclass
class GraphComparison:
    """A comparison of the first step `first` with the step `later`, whose states are called `keys` in the order of its
    inputs.
    """

    first: OptimizerGraph
    later: OptimizerGraph
    keys: Sequence[StateKey]
    given: Collection[StateKey] = ()
    """The states that both steps are given: numbers that the groups had before the first step."""
    values: Sequence[float] = ()
    """The numbers of the groups."""
    _values: dict[Node, Any] = field(default_factory=dict[Node, Any])
    beginnings: dict[Node, Any] = field(default_factory=dict[Node, Any])
    """The value of the first step in the place of each input of the later step."""
    numbers: dict[Node, Number] = field(default_factory=dict[Node, Number])
    """The numbers of states that are Python numbers."""
    unknown: dict[StateKey, Exception] = field(default_factory=dict[StateKey, Exception])
    """The states of which the steps do not tell how they begin, and why."""
    _computed: list[tuple[Any, Node]] = field(default_factory=list[tuple[Any, Node]])
    """Numbers of the first step, and the nodes of the later one that must be equal to them."""

    def run(self) -> dict[StateKey, Initial]:
        """Return the beginning of each state that the steps tell of: of none if they differ. Raises TraceError if they do not
        keep the same states.
        """
        count = self.later.module.count
        inputs, others = self.later.inputs, self.first.inputs
        states = inputs[2 * count : 2 * count + len(self.keys)]
        same = [*inputs[: 2 * count], *inputs[2 * count + len(self.keys) :]]
        self._inputs = dict(zip(same, others, strict=True))
        self._states = dict(zip(states, self.keys, strict=True))
        try:
            self._guess_numbers()
            self._compare_results()
        except Different as different:
            where = self.later.location(different.node) if different.node is not None else self.later.fallback
            error = self._error("its first step does something else than the next ones", where)
            self.unknown = dict.fromkeys(self.keys, error)
            return {}
        found = {key: self._initial(node, key) for node, key in self._states.items()}
        return {key: initial for key, initial in found.items() if initial is not None}

    def none(self) -> dict[StateKey, Initial]:
        """Return no beginning: the states are those that the optimizer has."""
        error = self._error("its step needs states that it has made before", self.later.fallback)
        self.unknown = dict.fromkeys(self.keys, error)
        return {}

    def number_types(self) -> dict[StateKey, type[Number]]:
        """Return the types that states which are Python numbers have after the first step."""
        literals = self.first.module.record.literals
        kinds = self.first.module.record.kinds
        numbers = self.first.module.record.numbers | self.later.module.record.numbers
        return {key: kinds.get(key) or type(literals.get(key, 0.0)) for key in numbers}

    def _error(self, what: str, where: Any) -> Exception:
        title = type(self.later.module.optimizer).__name__
        return trace_error(
            f"{title}.step cannot be compiled: {what}; begin with states that make them the same, as zeros, or take a step of"
            f" {title} before it is compiled",
            where,
        )

    def _results(self, graph: OptimizerGraph) -> dict[StateKey, Node]:
        return dict(zip(graph.module.record.keys, graph.results[graph.module.count :], strict=True))

    def _guess_numbers(self) -> None:
        """Guess that a Python number known after the first step began as one that leads there: 0 that is counted up to 1."""
        later = self._results(self.later)
        for node, key in self._states.items():
            if key not in self.first.module.record.literals or key in self.given:
                continue
            end = self.first.module.record.literals[key]
            if key not in later:
                self.numbers[node] = end
                continue
            for guess in (0, end, end - 1, 1):
                self.numbers[node] = guess
                if self._known(later[key]) == end:
                    break
            else:
                raise Different(later[key])

    def _compare_results(self) -> None:
        count = self.later.module.count
        pairs: list[tuple[Any, Any]] = list(
            zip(self.first.results[:count], self.later.results[:count], strict=True)
        )
        first, later = self._results(self.first), self._results(self.later)
        literals = self.first.module.record.literals
        if {*first, *literals} != {*later, *self.later.module.record.literals}:
            raise self._error("its first step keeps other states than the next ones", self.later.fallback)
        for key, node in later.items():
            pairs.append((literals[key] if key in literals else first[key], node))
        seen: set[tuple[int, int]] = set()
        while pairs:
            a, b = pairs.pop()
            if (id(a), id(b)) in seen:
                continue
            seen.add((id(a), id(b)))
            pairs += self._parts(a, b)
        for number, node in self._computed:
            if not _equal(number, self._known(node)):
                raise Different(node)

    def _parts(self, a: Any, b: Any) -> list[tuple[Any, Any]]:
        """Return the pairs that must be the same for `a` of the first step to equal `b` of the later one. Raises
        Different.
        """
        if isinstance(b, Node):
            b = source_of(b)
            if b in self._states and b not in self.numbers:
                if not isinstance(a, Node) or self.beginnings.setdefault(b, source_of(a)) is not source_of(a):
                    raise Different(b)
                return []
            if not isinstance(a, Node):  # Python has computed it already
                if b.target is aten.where.self and (chosen := self._chosen(b)) is not None:
                    return [(a, chosen)]
                self._computed.append((a, b))
                return []
            a = source_of(a)
            if b.target is aten.where.self is not a.target and (chosen := self._chosen(b)) is not None:
                return [(a, chosen)]
            if b in self._inputs:
                if self._inputs[b] is not a:
                    raise Different(b)
                return []
            if b in self.later.constants:
                one, other = self.first.constants.get(a), self.later.constants[b]
                if one is None or one.dtype is not other.dtype or not torch.equal(one, other):
                    raise Different(b)
                return []
            if a.op != "call_function" or a.target is not b.target or set(a.kwargs) != set(b.kwargs):
                raise Different(b)
            return [(a.args, b.args), *((a.kwargs[name], b.kwargs[name]) for name in b.kwargs)]
        if isinstance(b, (tuple, list)):
            if not isinstance(a, (tuple, list)) or len(cast("list[Any]", a)) != len(cast("list[Any]", b)):
                raise Different(None)
            return list(zip(cast("list[Any]", a), cast("list[Any]", b), strict=True))
        if not _equal(a, b):
            raise Different(None)
        return []

    def _chosen(self, where: Node) -> Any:
        """Return the side that the first step takes of a decision by numbers, with the numbers of the groups now; None if
        they do not tell.
        """
        numbers = self.later.inputs[2 * self.later.module.count + len(self.keys) :]
        known = torch.tensor(self.values, dtype=torch.float64, device="cpu").unbind()
        self._values = dict(zip(numbers, known, strict=True))
        try:
            return where.args[1 if self._known(where.args[0]) else 2]
        except Different:
            return None
        finally:
            self._values = {}

    def _known(self, node: Any) -> Any:
        """Return the value of a node that depends on numbers only. Raises Different."""
        if not isinstance(node, Node):
            return node
        if node in self._values:
            return self._values[node]
        if node in self.numbers:
            return self.numbers[node]
        if node in self.later.constants:
            return self.later.constants[node]
        if node in self.beginnings:
            return self._evaluated(self.beginnings[node], {})
        value = node.meta.get("val")
        if node.op != "call_function" or (isinstance(value, torch.Tensor) and value.numel() != 1):
            raise Different(node)
        args = [self._known(each) for each in node.args]
        if node.target in READS:
            return args[0].item() if isinstance(args[0], torch.Tensor) else args[0]
        function: Any = node.target
        try:
            return function(*args, **{name: self._known(each) for name, each in node.kwargs.items()})
        except (ArithmeticError, RuntimeError, TypeError, ValueError):
            raise Different(node) from None

    def _evaluated(self, node: Node, given: Mapping[Node, torch.Tensor]) -> torch.Tensor:
        """Return the value of a node of the first step, from the inputs that are `given` and from constants. Raises
        Different.
        """
        signature, constants = self.first.program.graph_signature, self.first.program.constants
        names = {str(spec.arg.name): str(spec.target) for spec in signature.input_specs if spec.target}
        values: dict[Node, Any] = {**given}
        for each in ancestors(node):
            if each in values:
                continue
            if each.op == "placeholder":
                if each.name not in names:
                    raise Different(each)
                values[each] = constants[names[each.name]]
                continue
            like: Any = each.args[0] if each.target in FACTORIES else None
            known: Any = {**values, like: _of_shape(like)}.__getitem__ if like else values.__getitem__
            args, kwargs = map_arg((each.args, each.kwargs), known)  # pyright: ignore
            target: Any = each.target
            values[each] = target(*args, **kwargs)
        return values[node].detach().clone()

    def _initial(self, node: Node, key: StateKey) -> Initial | None:
        if key in self.given:  # the group has it
            return lambda _: torch.tensor(0.0, dtype=torch.float64, device="cpu")
        if node in self.numbers:
            number = torch.tensor(float(self.numbers[node]), dtype=torch.float64, device="cpu")
            return lambda _: number
        if node not in self.beginnings:  # nothing reads it, so it keeps its value
            first = self._results(self.first)
            if key not in first:
                what = f"nothing says how its state {key[1]!r} begins"
                self.unknown[key] = self._error(what, self.later.fallback)
                return None
            self.beginnings[node] = first[key]
        beginning, inputs = self.beginnings[node], self.first.inputs[: self.first.module.count]
        needed = {each for each in ancestors(beginning) if each.op == "placeholder"}
        if needed & set(self.first.inputs[self.first.module.count :]):
            what = f"its state {key[1]!r} begins with a gradient or a hyperparameter"
            self.unknown[key] = self._error(what, self.later.location(beginning))
            return None
        return lambda params: self._evaluated(beginning, dict(zip(inputs, params, strict=True)))


def ancestors(node: Node) -> list[Node]:
    """Return the nodes that a node depends on, and the node itself, each after its operands."""
    found: dict[Node, None] = {}
    pending = [node]
    while pending:
        each = pending[-1]
        shaped = each.args[:1] if each.target in FACTORIES else ()
        operands = [operand for operand in each.all_input_nodes if operand not in shaped]
        missing = [operand for operand in operands if operand not in found]
        pending += missing
        if not missing:
            found[pending.pop()] = None
    return list(found)


def _of_shape(node: Any) -> torch.Tensor:
    value: torch.Tensor = node.meta["val"]
    return torch.empty(value.shape, dtype=value.dtype, device="cpu")


def source_of(node: Node) -> Node:
    """Return the node that a node is a copy of."""
    while node.op == "call_function" and node.target in COPIES and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def _equal(a: Any, b: Any) -> bool:
    b = b.item() if isinstance(b, torch.Tensor) and not isinstance(a, torch.Tensor) else b
    if isinstance(a, float) and isinstance(b, float) and a != a:
        return b != b
    return bool(a == b) if isinstance(a, Mapping) or not isinstance(a, torch.Tensor) else a is b
