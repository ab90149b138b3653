"""The gradients of an exported graph equal torch's: it runs once under autograd, and values without a gradient are cut.

An export keeps the computation, but not torch's autograd record of it: `no_grad` is lost once the graph is
functional, and `detach` becomes a view that is made again after each write to its memory. So the graph, before it is
functional, runs on tensors without values, by torch's own autograd. The run tells, at each op, if a tensor has a
gradient:

- a result of differentiable operands to which torch gives no gradient is cut where it is made (`no_grad`, a statistic);
- a tensor without a gradient is cut where it is read, if its memory may carry one (a detached view, say, or its base);
- `detach` is a plain view from then on.

A write that changes the value of a tensor with a gradient, and that torch does not record, is refused: a functional graph
would differentiate it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import TensorArgument
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.fx.passes.shape_prop import TensorMetadata
from torch.nn.attention import SDPBackend, sdpa_kernel

from aicf_mlir.errors import AicfError
from aicf_mlir.frontend.autograd_graph import has_none, is_differentiable, leaves_of, like
from aicf_mlir.frontend.backwards import Backwards
from aicf_mlir.frontend.batched import levels_restored, made_leaf, unbatched
from aicf_mlir.frontend.composites import BLOCK as AUTOCAST
from aicf_mlir.frontend.composites import typed_by_autocast
from aicf_mlir.frontend.custom_gradients import ARRIVING, CUSTOM_GRADIENT
from aicf_mlir.frontend.cut import CUT
from aicf_mlir.frontend.effects import EFFECT, Writes, written_operands
from aicf_mlir.frontend.exported_step import ExportedStep
from aicf_mlir.frontend.grad_modes import Freezes, inline_grad_modes, records_gradients
from aicf_mlir.frontend.graph_walk import following
from aicf_mlir.frontend.markers import GRADIENT, GRADIENT_ROWS
from aicf_mlir.frontend.quiet import quiet
from aicf_mlir.frontend.recorder import beside_the_graph, tensors
from aicf_mlir.frontend.replaced_data import memory_of
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.torch_errors import explained
from aicf_mlir.frontend.types import has_numbers

aten: Any = torch.ops.aten

ATTENTION: Any = sdpa_kernel
"""It chooses between torch's forms of attention; one of them has a second derivative."""

OURS = ("aicf_train", "aicf_custom")
"""The namespaces of ops for work that torch does outside the graph."""

BACKWARD = "aicf_train.backward.default"
"""The op whose first operand is a loss."""

NEW_VALUES = ("aicf_train.update.default", "aicf_train.written.default")
"""The ops whose results become the values of parameters."""

LEAF = "aicf_train.leaf.default"
"""The op whose result has a gradient."""


def cut_as_torch(exported: ExportedStep) -> ExportedStep:
    """Cut, in place, each value that has no gradient in torch, in a graph that is not functional yet.

    Each node whose op writes to an operand without saying so is marked. The result records the cuts that its functional
    graph must have. Raises TraceError for a write that torch does not record.
    """
    module = exported.program.graph_module
    inline_grad_modes(module)
    placeholders = module.graph.find_nodes(op="placeholder")
    given = [node.meta["val"] for node in placeholders]
    fake_mode: Any = next(value.fake_mode for value in given if isinstance(value, FakeTensor))
    required = exported.requiring_gradient
    run = _Run(exported)
    with ExitStack() as stack:
        managers: tuple[Any, ...] = (
            quiet(),
            typed_by_autocast(),
            levels_restored(),
            ATTENTION(SDPBackend.MATH),
            enable_python_dispatcher(),
            fake_mode,
        )
        for manager in managers:
            stack.enter_context(manager)
        values = [
            value.detach().requires_grad_(node.name in required) if isinstance(value, torch.Tensor) else value
            for node, value in zip(placeholders, given, strict=True)
        ]
        run.parameters = {memory_of(value) for value in values if is_differentiable(value)}
        named = {node.name: value for node, value in zip(placeholders, values, strict=True)}
        run.freezes = Freezes({own: named[name] for own, name in exported.parameters.items()})
        returned = cast(Sequence[Node], run.graph(module, values))
        run.freezes.set(frozenset())
        if run.takes and not exported.recorder.writes_parameters:
            run.expect_kept(returned[0])
    run.backwards.expect_same(None if run.asks else run.values[returned[0]], run.writes)
    _cut_loss(exported, run, returned[0])
    leaves = leaves_of(run.values[returned[0]]) if not run.asks else ()
    return replace(
        exported,
        trained=frozenset(
            node.name for node in placeholders if any(run.values[node] is leaf for leaf in leaves)
        ),
        detached=frozenset(
            node.name for node in placeholders if not getattr(run.values[node], "requires_grad", False)
        ),
        written=frozenset(node.name for node in placeholders if run.hidden & {memory_of(run.values[node])}),
    )


def _cut_loss(exported: ExportedStep, run: _Run, loss: Node) -> None:
    """Cut the loss if torch gives it no gradient, and make the signature name the current results."""
    output = exported.program.graph.output_node()
    if not run.value(loss).requires_grad and (cut := run.without_gradient(output, loss)) is not loss:
        output.replace_input_with(loss, cut)
        exported.program.graph_module.recompile()
    results = cast(Sequence[Any], output.args[0])
    for spec, result in zip(exported.program.graph_signature.output_specs, results, strict=True):
        if isinstance(result, Node):
            spec.arg = TensorArgument(result.name)


@dataclass
class _Run:
    """One run of a graph by autograd, on tensors without values."""

    exported: ExportedStep
    values: dict[Node, Any] = field(default_factory=dict[Node, Any])
    """The values of nodes; all of them are kept, so no memory is used twice."""
    held: dict[object, list[torch.Tensor]] = field(default_factory=dict[object, list[torch.Tensor]])
    """The tensors with a gradient, by memory. Memory that is here may carry a gradient in a functional graph."""
    writes: dict[object, int] = field(default_factory=dict[object, int])
    """The number of writes to each memory up to here."""
    made: dict[Node, int] = field(default_factory=dict[Node, int])
    """The number of writes to a node's memory when it was made, by node."""
    cuts: dict[tuple[Node, int], Node] = field(default_factory=dict[tuple[Node, int], Node])
    """The cut of a node, valid while the number of writes to its memory stays the same."""
    fresh: set[int] = field(default_factory=set[int])
    """The ids of results that are to be cut once a node represents them."""
    loose: set[int] = field(default_factory=set[int])
    """The ids of views made under `no_grad`, and of tensors that follow from these alone: torch says that they have a
    gradient.
    """
    leaves: set[int] = field(default_factory=set[int])
    """The ids of tensors that the graph makes leaves."""
    asks: bool = False
    """True if the graph asks for gradients itself, as a loop body does."""
    takes: bool = False
    """True if the graph computes with gradients that it takes itself."""
    hidden: set[object] = field(default_factory=set[object])
    """The memory that ops have written to without declaring it in their schema."""
    updated: set[object] = field(default_factory=set[object])
    """The memory of new values of parameters."""
    backwards: Backwards = field(default_factory=Backwards)
    freezes: Freezes = field(default_factory=lambda: Freezes({}))
    parameters: set[object] = field(default_factory=set[object])
    """The memory of leaves: inputs that have a gradient, and tensors that a loop body has made leaves."""

    def graph(self, module: GraphModule, given: Sequence[Any]) -> Any:
        """Run the graph of `module`, and return its results' nodes."""
        placeholders = iter(given)
        for node in list(module.graph.nodes):
            if node.op == "output":
                module.recompile()
                return node.args[0]
            if node.op == "placeholder":
                self.define(node, next(placeholders))
            elif node.op == "get_attr":
                self.define(node, getattr(module, str(node.target)))
            elif node.target is aten.detach_.default:  # of a constant, whose views it would cut
                self._erase(node)
            else:
                self.freezes.reach(node)
                with torch.set_grad_enabled(records_gradients(node)):
                    self.define(node, self._call(node))
                self._expect_same(node)
                self._cut_result(node)
        raise TypeError("a graph without an output")

    def value(self, node: Node) -> Any:
        """The current value of a node; inside of vmap the tensor with all rows."""
        value = self.values[node]
        return unbatched(value) if isinstance(value, torch.Tensor) else value

    def expect_kept(self, loss: Node) -> None:
        """Raise torch's own error if the loss needs a part of the graph that a gradient in the step has freed."""
        value = self.value(loss)
        if not value.requires_grad:
            return
        try:
            torch.autograd.grad(value, leaves_of(value), allow_unused=True)
        except RuntimeError as error:
            raise explained(error, self.exported.location(loss)) from error

    def define(self, node: Node, value: Any) -> None:
        """Set the value of a node to the current one."""
        self.values[node] = value
        if isinstance(value, torch.Tensor):
            value = unbatched(value)
            memory = memory_of(value)
            self.made[node] = self.writes.get(memory, 0)
            if value.requires_grad:
                held = self.held.setdefault(memory, [])
                if not any(value is other for other in held):
                    held.append(value)

    def _call(self, node: Node) -> Any:
        args, kwargs = cast(Any, map_arg((node.args, node.kwargs), self.values.__getitem__))
        if node.target is AUTOCAST:
            device, dtype, enabled, _, inside, *operands = args
            with torch.autocast(device, dtype, enabled, cache_enabled=False):
                returned = self.graph(inside, operands)
            return map_arg(returned, self.values.__getitem__)
        op: Any = node.target
        if not isinstance(op, OpOverload):
            return self._other(node, args, kwargs)
        try:
            if op.namespace in OURS:
                return self._ours(node, op, args, kwargs)
            return self._op(node, op, args, kwargs)
        except AicfError:
            raise
        except Exception as error:
            raise explained(error, self.exported.location(node)) from error

    def _other(self, node: Node, args: Any, kwargs: Any) -> Any:
        """Run a Python function; give an op with a graph inside, which the importer refuses, results like the traced ones."""
        if not isinstance(node.target, HigherOrderOperator):
            return cast(Any, node.target)(*args, **kwargs)
        carries = any(operand.requires_grad for operand in tensors((args, kwargs)))
        return like(node.meta.get("val"), carries)

    def _ours(self, node: Node, op: Any, args: Any, kwargs: Any) -> Any:
        if op is CUSTOM_GRADIENT:
            self._saw(node, args[3], set())
        if op in (GRADIENT, GRADIENT_ROWS):
            self.takes = True
            self._saw(node, args[:3], set())
            for output in args[0]:
                self.backwards.expect_same(output, self.writes)
        made = op(*args, **kwargs)
        if str(op) == BACKWARD:
            self.asks = True
            self.backwards.expect_same(args[0], self.writes)
            self._differentiate(*args)
        if str(op) == LEAF:
            self.leaves.add(id(unbatched(made_leaf(made))))
            self.parameters.add(memory_of(made))
        if str(op) in NEW_VALUES:
            self.updated.update(map(memory_of, tensors(made)))
        if op in (ARRIVING, CUSTOM_GRADIENT):
            number = args[1 if op is ARRIVING else 4]
            self.backwards.ours(number, op, made, self.values.values(), self.exported.location(node))
        return made

    def _differentiate(self, loss: torch.Tensor, wrt: Sequence[torch.Tensor], retain_graph: bool) -> None:
        """Let torch take the gradients of a loss: it frees the graph, and raises where it needs one that is freed."""
        leaves = leaves_of(loss)
        given = [leaf for leaf in leaves if memory_of(leaf) in self.parameters]
        is_whole = all(any(leaf is each for each in wrt) for leaf in given)  # no `inputs=` was given
        torch.autograd.grad(loss, leaves if is_whole else wrt, retain_graph=retain_graph, allow_unused=True)

    def _op(self, node: Node, op: Any, args: Any, kwargs: Any) -> Any:
        operands = list(tensors((args, kwargs)))
        written = list(map(unbatched, written_operands(op, args, kwargs)))
        own = {memory_of(tensor) for tensor in written}
        had_gradient = {id(operand): operand.requires_grad for operand in operands}
        before = [(t, t._version, t.grad_fn) for memory in own for t in self.held.get(memory, ())]
        seen = set[object]()
        with Writes(lambda tensor: seen.add(memory_of(tensor))):
            made = self._without_loose_ends(op(*args, **kwargs), operands)
        memories = {memory_of(operand) for operand in operands}
        if hidden := (seen & memories) - own:
            node.meta[EFFECT] = True
        self._saw(node, operands, own | hidden)
        for memory in own | hidden:
            self.writes[memory] = self.writes.get(memory, 0) + 1
        of_parameters = self.parameters if self.exported.recorder.writes_parameters else ()
        if not memories & self.updated and not own.issubset(of_parameters):
            self._expect_recorded(node, before)
        results = [t for t in tensors(made) if memory_of(t) not in memories]
        if any(t.requires_grad for t in (*tensors(made), *written)):
            shared = hidden | {memory_of(t) for t in tensors(made) if all(t is not each for each in written)}
            cut = [t for t in operands if not had_gradient[id(t)] and memory_of(t) not in shared]
            self._cut_operands(node, written, cut)
            self.fresh.update(id(t) for t in results if has_none(t))
        elif written:
            self._cut_operands(node, written, [t for t in operands if memory_of(t) not in hidden])
        elif any(memory_of(t) in self.held for t in operands if has_numbers(t)):
            self.fresh.update(id(t) for t in results if has_none(t))
        if op is aten.detach.default:
            node.target = aten.alias.default
        for tensor in written:
            if tensor.requires_grad:
                self.held.setdefault(memory_of(tensor), []).append(tensor)
        self.hidden |= hidden
        for memory in hidden:
            self.held.setdefault(memory, [])
        return made

    def _saw(self, node: Node, operands: Any, written: set[object]) -> None:
        self.backwards.saw(node, tensors(operands), written, self.exported.location(node), self.writes)

    def _without_loose_ends(self, made: Any, operands: Sequence[torch.Tensor]) -> Any:
        """Return the results of an op. A view made under `no_grad` of a tensor with a gradient claims to have one: it
        leads nowhere.
        """
        if isinstance(made, (list, tuple)):
            return [self._without_loose_ends(each, operands) for each in cast(Sequence[Any], made)]
        is_new = isinstance(made, torch.Tensor) and not any(
            unbatched(made) is operand for operand in operands
        )
        if not is_new or not made.requires_grad or made.grad_fn is not None:
            return made
        made = made.detach()
        self.loose.add(id(made))
        return made

    def _expect_same(self, node: Node) -> None:
        """Raise TraceError if a tensor has a gradient here and had none in the user's code, or the other way round."""
        value, traced = self.values[node], node.meta.get("tensor_meta")
        if not isinstance(value, torch.Tensor) or not isinstance(traced, TensorMetadata):
            return
        if id(unbatched(value)) in self.leaves:  # as it is, or as the result of a block
            return
        if traced.requires_grad == value.requires_grad:
            return
        if traced.requires_grad:
            if any(id(self.value(operand)) in self.loose for operand in (node, *node.all_input_nodes)):
                self.loose.add(id(value))
                return
            if self.exported.recorder.leaves:
                return  # it belongs to a leaf of the step's own, which is no parameter
        had, has = ("a", "none") if traced.requires_grad else ("no", "one")
        raise trace_error(
            f"the result of {node.target} had {had} gradient in the step, and has {has} in the graph that torch"
            f" {torch.__version__} makes of it: a fault of its tracing; leave out no_grad, enable_grad or detach around it",
            self.exported.location(node),
        )

    def _expect_recorded(self, node: Node, before: Sequence[tuple[torch.Tensor, int, Any]]) -> None:
        """Raise TraceError if a write has changed a tensor with a gradient and autograd did not record it."""
        if any(
            t._version != version and t.requires_grad and t.grad_fn is known for t, version, known in before
        ):
            how = "a detached tensor in place, and the one with a gradient too"
            how = how if torch.is_grad_enabled() else "a tensor in place under `no_grad`"
            raise beside_the_graph(f"changes {how}", self.exported.location(node))

    def _cut_operands(self, node: Node, written: Sequence[Any], operands: Sequence[torch.Tensor]) -> None:
        """Make an op read cuts of these operands, except those that it writes to."""
        cut = set(map(id, operands)) - set(map(id, written))
        for operand in node.all_input_nodes:
            if id(self.value(operand)) not in cut:
                continue
            if (read := self.without_gradient(node, operand)) is not operand:
                node.replace_input_with(operand, read)

    def without_gradient(self, reader: Node, node: Node) -> Node:
        """Return a cut of the value of `node` before `reader`; `node` itself if it carries no gradient."""
        value = self.value(node)
        memory = memory_of(value)
        if not has_numbers(value) or memory not in self.held:
            return node
        writes = self.writes.get(memory, 0)
        if (node, writes) not in self.cuts:
            place = following(node) if self.made[node] == writes else reader
            self.cuts[node, writes] = self._insert(place, node)
        return self.cuts[node, writes]

    def _cut_result(self, node: Node) -> None:
        """Make readers of a result read a cut of it, if it has no gradient."""
        value = self.value(node)
        if isinstance(value, torch.Tensor) and id(value) in self.fresh:
            cut = self._insert(following(node), node)
            node.replace_all_uses_with(cut, lambda user: user is not cut)
            self.fresh.remove(id(value))
            self.define(cut, self.values[node])

    def _insert(self, before: Node, node: Node) -> Node:
        with node.graph.inserting_before(before):
            cut = node.graph.call_function(CUT, (node,))
        cut.meta = {key: value for key, value in node.meta.items() if key != EFFECT}
        return cut

    def _erase(self, node: Node) -> None:
        operand = cast(Node, node.args[0])
        node.replace_all_uses_with(operand)
        node.graph.erase_node(node)
