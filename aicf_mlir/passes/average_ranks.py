"""Data parallel training: every rank takes the mean of the gradients of all, and the buffers of rank 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, FixedBitwidthType, IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Operation, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.emitter import Emitter, location_of, summed_in
from aicf_mlir.ir.division import OWN_TEXT
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.ir.signature import (
    OF_EACH_RANK,
    OF_RANK,
    ArgumentIndex,
    Label,
    argument_labels,
    result_labels,
    return_op,
    set_results,
    steps,
)
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.passes.autodiff import refuse

BUCKET = 25 << 20
"""Bytes of gradients that one collective has at most, if it has more than one, as in torch's DistributedDataParallel."""

Of = int | Literal["mean"] | tuple[Literal["mean"], int]
"""What the ranks take: all of them the value of one, or the mean; or one of them, whose number it is, takes the mean."""


@dataclass(frozen=True)
class AverageRanksPass(ModulePass):
    """Let every gradient be the mean of those of all ranks, and every new value of a buffer with `aicf.of_rank` that rank's.

    Gradients of one type go in buckets, in the order in which they exist. A collective makes the mean of a bucket. It adds in
    the order of ranks, in f32 for 16-bit numbers, and the mean is rounded once: the arithmetic of as many micro-batches. A
    gradient that is a wider copy of 16-bit numbers, as under autocast, is exchanged as these: half the bytes, the same sum.
    What is made of a mean stands behind the next collective.

    Options:
      group: the name of the group
      ranks: how many ranks it has
      bucket: the bytes of a bucket
    """

    name = "average-ranks"

    ranks: int
    group: str = "dp"
    bucket: int = BUCKET

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise ValueError(f"expected 1 rank or more, got {self.ranks}")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in steps(op):
            Averaging(function, self).write()
            in_order(function)


class Averaging:
    """The collectives of one function."""

    def __init__(self, function: func.FuncOp, options: AverageRanksPass):
        self.function, self.options = function, options
        self.order = {op: number for number, op in enumerate(function.body.block.ops)}
        self.results = list(zip(return_op(function).operands, result_labels(function), strict=True))
        if not any(label.role == "grad" for _, label in self.results):
            refuse(
                function, f"@{function.sym_name.data} has no gradients among its results; run autodiff first"
            )
        self.arguments = argument_labels(function)
        self.index = ArgumentIndex(self.arguments)

    def write(self) -> None:
        """Replace gradients and buffers among the results."""
        equal = same_on_all_ranks(self.function)
        wanted: list[Of | None] = [self.wanted(value, label, equal) for value, label in self.results]
        given = dict[Of, list[SSAValue]]()
        for (value, _), each in zip(self.results, wanted, strict=True):
            if each is not None:
                given.setdefault(each, []).append(value)
        buckets: list[tuple[Of, list[SSAValue]]] = [
            (each, bucket) for each, values in given.items() for bucket in self.buckets(values)
        ]
        buckets.sort(key=lambda pair: self.place(pair[1][-1]))
        exchanged: list[tuple[Of, list[SSAValue], OpResult]] = [
            (each, bucket, self.exchanged(bucket, each)) for each, bucket in buckets
        ]
        text = {op: number for number, op in enumerate(self.function.body.block.ops)}
        exchanged.sort(key=lambda row: text[row[2].op])
        if OWN_TEXT in self.function.attributes:
            self.function.attributes[OWN_TEXT] = ArrayAttr([self.named(bucket) for _, bucket, _ in exchanged])
        # Each behind the collective that follows its own: launches of one stream wait in the order of the text.
        behind = [own.op for _, _, own in exchanged[1:] + exchanged[-1:]]
        new = dict[tuple[Of, SSAValue], SSAValue | None]()
        for (each, bucket, own), later in reversed([*zip(exchanged, behind, strict=True)]):
            for value, taken in zip(bucket, self.taken(bucket, each, own, later), strict=True):
                new[each, value] = taken
        results = [
            (value if each is None else new[each, value], label)
            for (value, label), each in zip(self.results, wanted, strict=True)
        ]
        set_results(self.function, [(value, label) for value, label in results if value is not None])

    def takes(self, wanted: Of) -> bool:
        """Whether this rank takes it."""
        return not isinstance(wanted, tuple)

    def wanted(self, value: SSAValue, label: Label, equal: set[SSAValue]) -> Of | None:
        """What a result is on all ranks: the mean, or what it is on one of them; None if it is each rank's own."""
        if label.role == "grad":
            return "mean"
        if label.role != "update" or value in equal:
            return None
        argument = self.arguments[self.index.updated_by(label)[0]]
        rank = dict(argument.rest).get(OF_RANK)
        return rank.value.data if isinstance(rank, IntegerAttr) else None

    def buckets(self, values: Sequence[SSAValue]) -> list[list[SSAValue]]:
        """The values by type, in the order in which they exist, at most so many bytes together. Each value is there once."""
        found: list[list[SSAValue]] = []
        last = dict[tuple[Attribute, Attribute], tuple[list[SSAValue], int]]()
        for value in sorted(dict.fromkeys(values), key=self.place):
            kind = element_type(exchanged := narrowest(value)), element_type(value)
            bucket, size = last.get(kind, (list[SSAValue](), 0))
            mine = bytes_of(exchanged)
            if not bucket or size + mine > self.options.bucket:
                bucket, size = list[SSAValue](), 0
                found.append(bucket)
            bucket.append(value)
            last[kind] = (bucket, size + mine)
        return found

    def named(self, bucket: Sequence[SSAValue]) -> ArrayAttr[StringAttr]:
        """The names of the results that a bucket has."""
        return ArrayAttr(
            StringAttr(label.name) for each in bucket for value, label in self.results if value is each
        )

    def place(self, value: SSAValue) -> int:
        """The place in the text at which what is exchanged of a value exists."""
        value = narrowest(value)
        return self.order[value.op] if isinstance(value, OpResult) else -1

    def exchanged(self, values: Sequence[SSAValue], wanted: Of) -> OpResult:
        """The values of all ranks, or their means, as one; as soon as the last of them exists."""
        emitter, joined = self.joined(values)
        group, ranks = self.options.group, self.options.ranks
        op = (nn.AllGatherOp if isinstance(wanted, int) else nn.AllReduceOp)(joined, group, ranks)
        ending = "of_ranks" if isinstance(wanted, int) else "mean"
        emitter.emit(op, f"{joined.name_hint or 'value'}.{ending}")
        return op.result

    def joined(self, values: Sequence[SSAValue]) -> tuple[Emitter, SSAValue]:
        """What is exchanged of the values, as one, and where it is made."""
        narrow = [narrowest(value) for value in values]
        last = narrow[-1]
        start = InsertPoint.at_start(self.function.body.block)
        point = InsertPoint.after(last.op) if isinstance(last, OpResult) else start
        emitter = Emitter(point, location_of(last))
        flat = [emitter.emit(nn.ReshapeOp(value, [prod(shape_of(value))])) for value in narrow]
        return emitter, flat[0] if len(flat) == 1 else emitter.emit(nn.ConcatOp(flat, 0), "bucket")

    def taken(
        self, values: Sequence[SSAValue], wanted: Of, exchanged: SSAValue, later: Operation
    ) -> Sequence[SSAValue | None]:
        """The mean of each value over all ranks, or what it is on one of them, made behind `later`; None for what this rank does
        not take.
        """
        if not self.takes(wanted):
            return [None] * len(values)
        emitter = Emitter(InsertPoint.after(later), location_of(exchanged))
        one = rows_of(emitter, exchanged)[wanted] if isinstance(wanted, int) else exchanged
        return taken_apart(emitter, one, values, "of_rank" if isinstance(wanted, int) else "mean")


def taken_apart(emitter: Emitter, whole: SSAValue, values: Sequence[SSAValue], ending: str) -> list[SSAValue]:
    """What a bucket of `values` has become, as values of their shapes and types; `ending` of their names."""
    whole = emitter.cast(whole, element_type(values[-1]))
    parts: Sequence[SSAValue] = [whole]
    if len(values) > 1:
        parts = emitter.builder.insert(
            nn.SplitOp(whole, 0, [prod(shape_of(value)) for value in values])
        ).results
    return [
        emitter.emit(nn.ReshapeOp(part, shape_of(value)), value.name_hint and f"{value.name_hint}.{ending}")
        for part, value in zip(parts, values, strict=True)
    ]


def same_on_all_ranks(function: func.FuncOp) -> set[SSAValue]:
    """The values that are the same on all ranks: gathered ones, and all that depends neither on a batch nor on what each rank has
    for itself.

    Where each rank may have another text only what passes make of means of gradients is: code of the user has none.
    """
    own = ("input", "status")
    found: set[SSAValue] = {
        argument
        for argument, label in zip(function.args, argument_labels(function), strict=True)
        if label.role not in own
        and OF_EACH_RANK not in dict(label.rest)
        and (label.role != "buffer" or OF_RANK in dict(label.rest))
    }
    means, is_own = set[SSAValue](), OWN_TEXT in function.attributes
    for op in function.body.block.ops:
        if isinstance(op, nn.AllToAllOp):
            continue
        is_mean = isinstance(op, (nn.AllReduceOp, nn.AllReduceStatusOp)) or not means.isdisjoint(op.operands)
        if isinstance(op, nn.COLLECTIVES) or (found.issuperset(op.operands) and (is_mean or not is_own)):
            found.update(op.results)
            if is_mean:
                means.update(op.results)
    return found


def gather(emitter: Emitter, value: SSAValue, group: str, ranks: int) -> list[SSAValue]:
    """A value as every rank has it, in their order."""
    return rows_of(emitter, all_gather(emitter, value, group, ranks))


def all_gather(emitter: Emitter, value: SSAValue, group: str, ranks: int) -> SSAValue:
    """A row for each rank, with the value that it has."""
    return emitter.emit(nn.AllGatherOp(value, group, ranks), f"{value.name_hint or 'value'}.of_ranks")


def rows_of(emitter: Emitter, gathered: SSAValue) -> list[SSAValue]:
    """The value of each rank, in their order, of a gathered one."""
    ranks, *shape = shape_of(gathered)
    rows = emitter.builder.insert(nn.SplitOp(gathered, 0, [1] * ranks)).results
    return [emitter.emit(nn.ReshapeOp(row, shape)) for row in rows]


def sum_of(emitter: Emitter, values: Sequence[SSAValue]) -> SSAValue:
    """The sum of one value of each rank, in their order; that of 16-bit numbers is in f32."""
    element = summed_in(values[0])
    total = emitter.cast(values[0], element)
    for value in values[1:]:
        total = emitter.emit(nn.AddOp(total, emitter.cast(value, element)), "of_ranks.sum")
    return total


def in_order(function: func.FuncOp) -> None:
    """Let every collective of a function wait for the one in front of it in the text."""
    before: tuple[SSAValue, ...] = ()
    for op in function.body.block.ops:
        if isinstance(op, nn.COLLECTIVES):
            op.operands = [op.x, *([op.status] if isinstance(op, nn.CollectiveStatusOp) else []), *before]
            before = (op.results[0],)


def narrowest(value: SSAValue) -> SSAValue:
    """The 16-bit numbers of which a value is a wider copy, if it is one; else the value."""
    made, element = value.owner, element_name(element_type(value))
    if (
        isinstance(made, nn.CastOp)
        and element in ("f32", "f64")
        and element_name(element_type(made.x)) in NARROW
    ):
        return made.x
    return value


def bytes_of(value: SSAValue) -> int:
    """The bytes of a value."""
    element = element_type(value)
    bits = element.bitwidth if isinstance(element, FixedBitwidthType) else 64
    return prod(shape_of(value)) * max(bits, 8) // 8
