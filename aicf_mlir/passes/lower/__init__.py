"""Lower nn and optim to kernel: one op becomes the launches that compute it, with its location.

Each rule takes an op and returns the ops that replace it; the results of the last ones replace its own. An op that is already a
launch has no rule; the others are rows of one table, in the other files of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnregisteredOp, i1
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.errors import LoweringError
from aicf_mlir.ir.attributes import AT_ONCE
from aicf_mlir.ir.expect import is_float
from aicf_mlir.ir.generated import GeneratedInterface
from aicf_mlir.ir.names import name_after_op
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.passes.lower import elementwise, linear_algebra, optimizers, same, shape
from aicf_mlir.passes.lower.generated import Sites, lower_generated
from aicf_mlir.passes.lower.results import give_results_memory

Rule = Callable[[Any], Sequence[Operation]]

RULES: Mapping[type[Operation], Rule] = {
    **same.RULES,
    **elementwise.RULES,
    **linear_algebra.RULES,
    **shape.RULES,
    **optimizers.RULES,
}

LEGAL_DIALECTS = ("builtin", "func", "kernel", "scalar", "arith", "math")


class ApplyRule(RewritePattern):
    """Replace an op by the launches that its rule in `RULES` makes, or by the generated launch of its body."""

    def __init__(self, bodies: Bodies):
        self.bodies, self.sites = bodies, Sites()

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        rule = RULES.get(type(op))
        if isinstance(op, GeneratedInterface) and (rule is None or not of_floats(op)):
            launches = lower_generated(op, self.bodies, self.sites)
        elif rule is not None:
            launches = rule(op)
        else:
            return
        for launch in launches:
            launch.location = op.location
        name_after_op(
            launch for launch in launches[:-1] if isinstance(launch, kernel.ReshapeOp | kernel.ViewOp)
        )
        if AT_ONCE in op.attributes:
            launches[-1].attributes[AT_ONCE] = op.attributes[AT_ONCE]
        results = [result for launch in launches for result in launch.results]
        rewriter.replace(op, launches, results[len(results) - len(op.results) :])


def of_floats(op: Operation) -> bool:
    """True if the prebuilt kernels compute it: none gives integers, reads booleans or repeats an operand of a gradient."""
    if any(element_type(operand) == i1 for operand in op.operands) or not all(map(is_float, op.results)):
        return False
    return type(op) not in elementwise.RULES or len({shape_of(operand) for operand in op.operands}) == 1


def full_name(op: Operation) -> str:
    """The name of an op, also of one whose dialect is not registered."""
    return op.op_name.data if isinstance(op, UnregisteredOp) else op.name


def check_lowered(module: ModuleOp) -> None:
    """Raise LoweringError at the first op that is not of a legal dialect."""
    for op in module.walk():
        if full_name(op).partition(".")[0] not in LEGAL_DIALECTS:
            known = ", ".join(sorted(str(kind.name) for kind in RULES))
            message = f"'{full_name(op)}' has no lowering to kernel ops; there are rules for {known}"
            op.emit_error(message, LoweringError(message))


@dataclass(frozen=True)
class LowerPass(ModulePass):
    """Rewrite nn and optim ops to kernel ops, one op one launch; each result gets memory of its own."""

    name = "lower"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        PatternRewriteWalker(ApplyRule(Bodies(op)), apply_recursively=False).rewrite_module(op)
        check_lowered(op)
        give_results_memory(op)
