"""Looking through kernel.reshape: the same memory, so an epilogue may apply on either side of it; and ops that rename memory."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel


def view_chain(value: SSAValue) -> list[SSAValue]:
    """`value`, then the operand that it is a reshape of, and so on: the last one is no reshape."""
    chain = [value]
    while isinstance(chain[-1].owner, kernel.ReshapeOp):
        chain.append(chain[-1].owner.input)
    return chain


def readers_of(value: SSAValue) -> Iterator[Operation]:
    """The ops that read `value`, also through ops that move no memory."""
    for use in value.uses:
        if isinstance(use.operation, kernel.VIEWS):
            yield from readers_of(use.operation.results[0])
        else:
            yield use.operation


def used_once(chain: list[SSAValue]) -> bool:
    """True if the values of a chain have no use but the next link, or the one use of the first."""
    return all(value.has_one_use() for value in chain)


def viewed_as(value: SSAValue, type_: Attribute) -> tuple[list[Operation], SSAValue]:
    """`value` as `type_`: a value of its chain, or a new reshape, which is returned as well."""
    for link in view_chain(value):
        if link.type == type_:
            return [], link
    reshape = kernel.ReshapeOp.build_op([value], [type_])
    if isinstance(value.owner, Operation):
        reshape.location = value.owner.location
    return [reshape], reshape.output


def in_place_of(value: SSAValue, new: SSAValue, place: Operation) -> SSAValue:
    """`new` with the type of `value`: itself, or a reshape before `place`, by the name of `value`."""
    if new.type == value.type:
        return new
    reshape = kernel.ReshapeOp.build_op([new], [value.type])
    reshape.location = place.location
    reshape.output.name_hint = value.name_hint
    Rewriter.insert_op(reshape, InsertPoint.before(place))
    return reshape.output


def sink(value: SSAValue, launch: Operation, anchor: Operation) -> None:
    """Move the ops that only move or rename `value`, before its launch, to after the launch: before `anchor`."""
    for use in list(value.uses):
        op = use.operation
        if isinstance(op, kernel.VIEWS) and op.is_before_in_block(launch):
            op.detach()
            Rewriter.insert_op(op, InsertPoint.before(anchor))
            sink(op.results[0], launch, anchor)


def erase_dead_views(chain: list[SSAValue], rewriter: PatternRewriter) -> None:
    """Erase the reshapes of a chain, first to last, up to one that is still in use."""
    for value in chain:
        if not isinstance(value.owner, kernel.ReshapeOp) or value.first_use is not None:
            return
        rewriter.erase(value.owner)


class FoldReshape(RewritePattern):
    """Fold reshape(reshape(x)) into one reshape of x, or x itself if that has the type already."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: kernel.ReshapeOp, rewriter: PatternRewriter) -> None:
        chain = view_chain(op.input)
        same = next((value for value in chain if value.type == op.output.type), None)
        if same is not None:
            rewriter.replace(op, [], [same])
        elif len(chain) > 1:
            folded = kernel.ReshapeOp.build_op([chain[-1]], [op.output.type])
            folded.location = op.location
            rewriter.replace(op, folded)
        else:
            return
        erase_dead_views(chain, rewriter)
