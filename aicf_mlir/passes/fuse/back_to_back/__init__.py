"""Narrow products over many rows become chains, together with all ops between them: kernel.chain.

A launch of one such product waits for memory. A chain reads its rows once and writes only the values that something else needs;
the weights stay near. The pass runs before all other fusion and takes the candidates for epilogues: bias, activation, the loss
and its gradient, the gradients of activations, sums of columns. A chain that its target's kernel rejects is tried with fewer
links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument

from aicf_mlir.codegen.schedule import reason
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir import registry
from aicf_mlir.ir.remarks import remark
from aicf_mlir.kernels.back_to_back import BackToBackKernel
from aicf_mlir.passes.fuse.back_to_back.grow import Chain, grow, is_narrow_product
from aicf_mlir.passes.fuse.back_to_back.plan import ChainPlan
from aicf_mlir.passes.fuse.back_to_back.write import write
from aicf_mlir.passes.fuse.rule import FusionRule

CHAIN_ROWS = 1 << 15
"""The fewest rows of products that become a chain: fewer do not fill a GPU with tiles of rows that stay in it."""
CHAINED_FROM = 90
"""The compute capability that has code for chains."""
MOST_LINKS = 24
"""The most links of a chain: each has its own code, which takes longer to compile than one more launch takes to run."""

Reason = Callable[[BackToBackKernel], str]
"""The reason why a target does not run a kernel; "" if it does."""


@dataclass(frozen=True)
class FuseBackToBackPass(FusionRule):
    """Write narrow products of 16 bits over many rows, with all ops between them, as one launch.

    Options:
      rows: the number of rows from which on; by default 2^15 where the target has code for it, and never elsewhere
    """

    name = "fuse-back-to-back"

    rows: int | None = None

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        rows = self.rows
        if rows is None and not self.is_cpu and registry.capability(self.target) >= CHAINED_FROM:
            rows = CHAIN_ROWS
        block = function.body.block
        for first in [op for op in block.ops if rows is not None and is_narrow_product(op, rows)]:
            if first.parent is block and isinstance(first, KernelOp):
                fuse_chain(function, bodies, first, self.target, rows or 0, reason)


def fuse_chain(
    function: FuncOp, bodies: Bodies, first: KernelOp, target: str, rows: int, reason: Reason
) -> None:
    """Write the longest chain from `first` on that the target runs; with remarks if that is not the whole chain."""
    ops = list(function.body.block.ops)
    ops = ops[ops.index(first) :]

    def grown(links: int) -> Chain:
        return grow(first, ops, bodies, rows, links)

    def refused(chain: Chain) -> str:
        """The reason why the target does not run the chain even with the fewest additions to its links; "" if it does."""
        return min((reason(plan.kernel(target)) for plan in plain_plans(chain)), key=bool)

    chain = whole = grown(MOST_LINKS)
    missed = refused(whole) if len(whole.links) > 1 else ""
    if missed:
        fits, fails = 1, len(whole.links)
        while fails - fits > 1:
            middle = (fits + fails) // 2
            fits, fails = (fits, middle) if refused(grown(middle)) else (middle, fails)
        chain = grown(fits)
    say(chain, whole, missed)
    if len(chain.links) > 1:
        fitting = (plan for plan in plans(chain) if not reason(plan.kernel(target)))
        write(function, bodies, next(fitting))


def plans(chain: Chain) -> Iterator[ChainPlan]:
    """The possible plans of a chain, the one that moves the fewest bytes first: with all products over rows, with the first or
    the last of them, or with none.

    A cast of the batch that something else reads too stays outside: it is made once where the batch is loaded
    (persistent_weights.py).
    """
    outers = chain.over_rows
    runs = [outers[first:] for first in range(len(outers))] + [
        outers[:last] for last in range(1, len(outers))
    ]
    found: list[ChainPlan] = []
    for casts in (True, False) if chain.cast is not None else (False,):
        found += [ChainPlan(chain, run, casts, keep=True) for run in runs]
        found += [ChainPlan(chain, (), casts, keep) for keep in (True, False)]
    found.sort(key=lambda plan: plan.traffic)
    yield from (plan for plan in found if not (plan.writes_a and isinstance(plan.a, BlockArgument)))


def plain_plans(chain: Chain) -> Iterator[ChainPlan]:
    """The least demanding plans: the last ones."""
    for keep in (True, False):
        yield ChainPlan(chain, (), casts=False, keep=keep)


def say(chain: Chain, whole: Chain, missed: str) -> None:
    """Report why there are no more links."""
    product, count = chain.links[-1].product, len(whole.links)
    if missed:
        remark(product, f"ends a chain of {len(chain.links)} products, of {count} that follow: {missed}")
    elif (reader := whole.ended_by) is not None:
        remark(
            product,
            f"ends a chain of {count} products: {reader.name} reads more than elements of its rows",
            (reader, "reads it"),
        )
