"""Several micro-batches and one update: the differentiated function once for each, and the mean of losses and gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, FunctionType, IntegerAttr, ModuleOp, TensorType, UnitAttr, i64
from xdsl.ir import OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.emitter import Emitter, location_of, summed_in
from aicf_mlir.ir.attributes import AT_ONCE
from aicf_mlir.ir.signature import (
    STATUS,
    ArgumentIndex,
    Label,
    argument_keys,
    argument_labels,
    result_labels,
    return_op,
    set_results,
    steps,
)
from aicf_mlir.ir.tensor_op import element_type
from aicf_mlir.passes.autodiff import SCALE, refuse
from aicf_mlir.passes.average_ranks import AverageRanksPass, Averaging, sum_of, taken_apart

MEANS = ("loss", "grad")
"""The roles of results that the mean is taken of."""


@dataclass(frozen=True)
class AccumulatePass(ModulePass):
    """Repeat every function for several micro-batches, one after the other, and return the mean of its losses and gradients.

    The input "x" becomes the inputs "x.0", "x.1", …. Values that a function updates (running statistics, the count of random
    numbers, the status) pass from one micro-batch to the next. An output "y" becomes the outputs "y.0", "y.1", …. Sums are made
    in order as soon as a gradient exists, 16-bit numbers in f32, and the mean is rounded once. The next micro-batch needs only
    the updates and sums of the one before.

    The scale of a scaled loss is divided by the count instead, where the backward pass begins. Its numbers are then as large as
    those of torch's `scaler.scale(loss / count).backward()`, and the sum of its gradients is their mean.

    With `apart` they are made at the end, in the buckets of `average-ranks`, so that launches which give a gradient are those of
    a step of so many ranks, and have their bits. All gradients of all micro-batches are kept until then.

    Options:
      count: how many
      apart: keep the gradients of the micro-batches apart
    """

    name = "accumulate"

    count: int
    apart: bool = False

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"expected a count of 1 or more, got {self.count}")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in steps(op):
            Accumulation(function, self.count, self.apart).write()


class Accumulation:
    """Accumulation for one function."""

    def __init__(self, function: func.FuncOp, count: int, apart: bool = False):
        self.function, self.count, self.apart = function, count, apart and count > 1
        self.arguments, self.labels = list(function.args), argument_labels(function)
        self.results = self.returned()
        if not any(label.role == "grad" for _, label in self.results):
            where = function.sym_name.data
            refuse(function, f"@{where} has no gradients among its results; run autodiff first")
        self.divided, keys = MEANS, argument_keys(function)
        """The roles of results whose sums are divided."""
        if count > 1 and ("buffer", SCALE) in keys:
            self.divided = ("loss",)
            self.divide(function.args[keys.index(("buffer", SCALE))])
            self.results = self.returned()
        self.body = list(function.body.block.ops)[:-1]
        self.codes = max((op.codes[-1] for op in self.body if isinstance(op, nn.CheckOp)), default=0)

    def returned(self) -> list[tuple[SSAValue, Label]]:
        """The results of the function."""
        return list(zip(return_op(self.function).operands, result_labels(self.function), strict=True))

    def divide(self, scale: SSAValue) -> None:
        """Begin the backward pass with a share of the scale, divided in the type of the loss, as torch divides it."""
        readers = [op for op in self.function.body.block.ops if scale in op.operands]
        if not readers:
            return
        begin, point = scale, InsertPoint.before(readers[0])
        if all(value.type != scale.type for value, label in self.results if label.role == "loss"):
            begin, point = readers[0].results[0], InsertPoint.after(readers[0])  # as autodiff has cast it
        uses = list(begin.uses)
        share = self.over_count(Emitter(point, readers[0].location), begin)
        share.name_hint = f"{begin.name_hint or SCALE}.share"
        for use in uses:
            use.operation.operands[use.index] = share

    def write(self) -> None:
        """Repeat the body, and return means, carried values, and the outputs of each."""
        ranks = Averaging(self.function, AverageRanksPass(ranks=self.count)) if self.apart else None
        gradients = [value for value, label in self.results if label.role == "grad"]
        buckets = ranks.buckets(gradients) if ranks else []
        inputs = self.inputs()
        carried: dict[SSAValue, SSAValue] = {}
        """The current value of each argument that a body updates."""
        found: list[list[SSAValue]] = [[] for _ in self.results]
        """The values found so far, by result: the last sum, the last update, or the outputs of all micro-batches."""
        for number, given in enumerate(inputs):
            values = self.repeat(number, {**carried, **dict(zip(inputs[0], given, strict=True))})
            for (value, label), so_far in zip(self.results, found, strict=True):
                name, value = value.name_hint or "value", values.get(value, value)
                if ranks and label.role == "grad":
                    so_far.append(value)
                elif label.role in MEANS:
                    is_last, is_divided = number == self.count - 1, label.role in self.divided
                    so_far[:] = [self.added(so_far, value, name, is_last, is_divided=is_divided)]
                elif label.role == "output":
                    so_far.append(value)
                else:
                    so_far[:] = [value]
                    carried[self.updated_by(label)] = value
        if ranks:
            of_each = {
                value: values
                for (value, label), values in zip(self.results, found, strict=True)
                if label.role == "grad"
            }
            means = {
                value: mean
                for bucket in buckets
                for value, mean in zip(bucket, self.added_apart(ranks, bucket, of_each), strict=True)
            }
            for (value, label), values in zip(self.results, found, strict=True):
                if label.role == "grad":
                    values[:] = [means[value]]
        set_results(
            self.function,
            [
                (value, numbered(label, number) if label.role == "output" else label)
                for (_, label), values in zip(self.results, found, strict=True)
                for number, value in enumerate(values)
            ],
        )

    def inputs(self) -> list[list[SSAValue]]:
        """The inputs of each micro-batch; the signature has the micro-batches one after the other."""
        function, block = self.function, self.function.body.block
        pairs = list(zip(self.arguments, self.labels, strict=True))
        first = [(argument, label) for argument, label in pairs if label.role == "input"]
        place = first[-1][0].index + 1 if first else 0
        labels = [numbered(label, 0) if label.role == "input" else label for label in self.labels]
        found: list[list[SSAValue]] = [[argument for argument, _ in first]]
        for number in range(1, self.count):
            found.append([])
            for argument, label in first:
                new = block.insert_arg(argument.type, place)
                new.name_hint = hint(argument, number)
                labels.insert(place, numbered(label, number))
                found[number].append(new)
                place += 1
        for argument, _ in first:
            argument.name_hint = hint(argument, 0)
        function.function_type = FunctionType.from_lists(block.arg_types, function.function_type.outputs.data)
        function.arg_attrs = ArrayAttr([label.to_attribute() for label in labels])
        return found

    def repeat(self, number: int, values: dict[SSAValue, SSAValue]) -> dict[SSAValue, SSAValue]:
        """Repeat the body once more at the end of the function, with other values for some; return the new value of each
        value.
        """
        if number == 0:
            return {}
        end = return_op(self.function)
        for op in self.body:
            again = op.clone(values)
            if isinstance(again, nn.CheckOp):  # each check of a micro-batch has its own code
                again.code = IntegerAttr(again.code.value.data + number * self.codes, i64)
            for old, new in zip(op.results, again.results, strict=True):
                new.name_hint = hint(old, number)
            self.function.body.block.insert_op_before(again, end)
        return values

    def added(
        self, so_far: Sequence[SSAValue], value: SSAValue, name: str, is_last: bool, *, is_divided: bool
    ) -> SSAValue:
        """The sum with one more value, emitted where the value is made; after the last value, the mean."""
        behind = InsertPoint.after(value.op) if isinstance(value, OpResult) else None
        emitter = Emitter(behind or InsertPoint.before(return_op(self.function)), location_of(value))
        if self.count == 1:
            return value
        total = emitter.cast(value, summed_in(value))
        if so_far:
            add = nn.AddOp(so_far[0], total)
            total = emitter.emit(add, f"{name}.sum")
            if not is_last:  # one launch for all sums would keep every gradient until the end
                add.attributes[AT_ONCE] = UnitAttr()
        if not is_last:
            return total
        if is_divided:
            total = self.over_count(emitter, total)
        mean = emitter.cast(total, element_type(value))
        mean.name_hint = f"{name}.mean"
        return mean

    def added_apart(
        self, ranks: Averaging, bucket: Sequence[SSAValue], of_each: Mapping[SSAValue, Sequence[SSAValue]]
    ) -> list[SSAValue]:
        """The sums, or means, of the values of a bucket, of which each micro-batch has its own."""
        joined = [
            ranks.joined([of_each[value][number] for value in bucket])[1] for number in range(self.count)
        ]
        emitter = Emitter(InsertPoint.before(return_op(self.function)), location_of(joined[-1]))
        total = sum_of(emitter, joined)
        if "grad" in self.divided:
            total = self.over_count(emitter, total)
        return taken_apart(emitter, total, bucket, "mean")

    def over_count(self, emitter: Emitter, value: SSAValue) -> SSAValue:
        """A value over the number of micro-batches."""
        count = emitter.emit(nn.ConstantOp(self.count, TensorType(element_type(value), [])))
        return emitter.emit(nn.DivOp(value, count))

    def updated_by(self, label: Label) -> SSAValue:
        """The argument that a result takes the place of: one it updates, or the status."""
        if label.role == STATUS:
            return next(
                argument
                for argument, own in zip(self.arguments, self.labels, strict=True)
                if own.role == STATUS
            )
        return self.arguments[ArgumentIndex(self.labels).updated_by(label)[0]]


def numbered(label: Label, number: int) -> Label:
    """The label of a value that belongs to one micro-batch: `x.1`."""
    return replace(label, name=f"{label.name}.{number}")


def hint(value: SSAValue, number: int) -> str | None:
    """The name of a value in the text of one micro-batch."""
    return value.name_hint and f"{value.name_hint}.{number}"
