"""Cross entropy of logits: a row is walked for its maximum, then for its sum of exponentials and the element of its target.

The gradient needs the same two numbers of a row, so both become one launch if they stand together. The number of rows that count
is a sum over the targets alone, computed first. csrc/kernels/loss/params.h specifies the results for a target outside of the
classes (NaN) and for an ignored target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from xdsl.dialects.builtin import f32, f64, i64
from xdsl.ir import Operation, SSAValue

from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.formula import Scalar, exp, log, row_max, row_sum, select
from aicf_mlir.ir.tensor_op import shape_of
from aicf_mlir.passes.fuse.loss_loops.launches import computed_in, launch, repeated, tensor_of

ROW_LOSSES = "row_losses"
"""The name of the losses of the rows."""


@dataclass(frozen=True)
class LogitRows:
    """The logits and their attributes."""

    count: int
    classes: int
    ignored: int
    smoothing: float
    is_mean: bool

    @staticmethod
    def of(op: KernelOp) -> LogitRows:
        """The rows of kernel.cross_entropy or its gradient."""
        count, classes = shape_of(op.ins["logits"][0])
        ignored, smoothing = op.attrs.get("ignore_index", -100), op.attrs.get("label_smoothing", 0.0)
        assert isinstance(ignored, int)
        assert isinstance(smoothing, float)
        return LogitRows(count, classes, ignored, smoothing, op.attrs.get("reduction", "mean") == "mean")

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the logits."""
        return self.count, self.classes

    def checked(self, target: Scalar, value: Scalar, where_ignored: Scalar | float) -> Scalar:
        """`value`, but NaN if the target is no class, and `where_ignored` if it is the one that does not count."""
        is_class = (target >= 0) & (target < self.classes)
        known = select(is_class, value, value.of(math.nan))
        return select(target.equal(self.ignored), value.of(where_ignored), known)

    def loss(self, logit: Scalar, target: Scalar) -> Scalar:
        """The loss of one row: log(sum of exp) less the target's logit and, with smoothing, less the mean of all logits."""
        target = target.cast("i64")
        most = row_max(logit)
        sum_log = log(row_sum(exp(logit - most)))
        is_target = logit.builder.index(1).equal(target)
        picked = sum_log + (most - row_sum(select(is_target, logit, logit.of(0.0))))
        mean = sum_log + (most - row_sum(logit) / self.classes)
        smoothed = picked * (1.0 - self.smoothing) + mean * self.smoothing
        return self.checked(target, smoothed if self.smoothing else picked, 0.0)

    def gradient(self, logit: Scalar, target: Scalar, scale: Scalar) -> Scalar:
        """The gradient of one logit: its softmax less the weight of its class, times the factor that all rows share."""
        target = target.cast("i64")
        power = exp(logit - row_max(logit))
        softmax = power / row_sum(power)
        weight = select(
            logit.builder.index(1).equal(target),
            logit.of(1.0 - self.smoothing + self.smoothing / self.classes),
            logit.of(self.smoothing / self.classes),
        )
        return self.checked(target, (softmax - weight) * scale, softmax * 0.0)

    def kept(self, target: Scalar) -> Scalar:
        """The number of rows that count."""
        one = target.builder.constant(1, "i64")
        return row_sum(select(target.cast("i64").equal(self.ignored), one.of(0), one))


def loss(op: KernelOp, bodies: Bodies) -> list[Operation]:
    """kernel.cross_entropy: the losses of the rows, then their sum or mean."""
    rows = LogitRows.of(op)
    views = Views(op, rows)
    of_rows = tensor_of(f64 if views.computed == "f64" else f32, rows.count)
    each = launch(bodies, "cross_entropy", rows.loss, views.operands, [of_rows], rows.shape, 1)
    each.results[0].name_hint = ROW_LOSSES
    return [*views.ops, each, _total(op, rows, each.results[0], bodies)]


def gradient(op: KernelOp, bodies: Bodies) -> list[Operation]:
    """The ops of kernel.cross_entropy_grad: the number of rows that count, then the gradient of the rows."""
    rows = LogitRows.of(op)
    views = Views(op, rows)
    views.share(op.ins["dloss"][0], bodies)

    def element(logit: Scalar, target: Scalar, *shared: Scalar) -> Scalar:
        return rows.gradient(logit, target, scale_of(*shared))

    result = [op.results[0].type]
    each = launch(bodies, "cross_entropy_grad", element, views.operands, result, rows.shape, 1)
    return [*views.ops, each]


def both(op: KernelOp, grad: KernelOp, bodies: Bodies) -> tuple[list[Operation], SSAValue, SSAValue]:
    """The launches of a loss and of its gradient, which reads the same: one for all rows, and the values of both."""
    rows = LogitRows.of(op)
    views = Views(op, rows)
    of_rows = tensor_of(f64 if views.computed == "f64" else f32, rows.count)
    views.share(grad.ins["dloss"][0], bodies)

    def row(logit: Scalar, target: Scalar, *shared: Scalar) -> list[Scalar]:
        return [rows.loss(logit, target), rows.gradient(logit, target, scale_of(*shared))]

    types = [of_rows, grad.results[0].type]
    each = launch(bodies, "cross_entropy_and_grad", row, views.operands, types, rows.shape, 1)
    each.results[0].name_hint = ROW_LOSSES
    total = _total(op, rows, each.results[0], bodies)
    return [*views.ops, each, total], total.results[0], each.results[1]


def are_one(op: KernelOp, grad: KernelOp) -> bool:
    """True if `grad` is the gradient of the loss `op`."""
    same = all(op.ins[name][0] is grad.ins[name][0] for name in ("logits", "target"))
    return same and LogitRows.of(op) == LogitRows.of(grad)


class Views:
    """The operands of the launches of rows, and the ops that make them: logits, targets, then the values that all rows share."""

    def __init__(self, op: KernelOp, rows: LogitRows):
        (logits,), (self.target,) = op.ins["logits"], op.ins["target"]
        self.rows, self.computed = rows, computed_in(logits)
        view = repeated(self.target, rows.shape, (1, 0))
        self.ops: list[Operation] = [view]
        self.operands = [logits, view.output]

    def share(self, dloss: SSAValue, bodies: Bodies) -> None:
        """Share the cotangent and, for a mean, the number of rows that count."""
        shared = [dloss]
        if self.rows.is_mean:
            count = self.rows.count
            counted = launch(
                bodies, "rows_kept", self.rows.kept, [self.target], [tensor_of(i64)], (count,), 1
            )
            counted.results[0].name_hint = "rows_kept"
            self.ops.append(counted)
            shared.append(counted.results[0])
        views = [repeated(value, self.rows.shape, (0, 0)) for value in shared]
        self.ops += views
        self.operands += [view.output for view in views]


def scale_of(dloss: Scalar, *kept: Scalar) -> Scalar:
    """The factor of a row's gradient: its share of the cotangent."""
    return dloss / kept[0].cast(dloss.type) if kept else dloss


def _total(op: KernelOp, rows: LogitRows, losses: SSAValue, bodies: Bodies) -> KernelOp:
    """The sum of the losses of the rows, or their mean."""

    def total(loss: Scalar, *target: Scalar) -> Scalar:
        found = row_sum(loss)
        return found / rows.kept(*target).cast(found.type) if target else found

    operands = [losses, op.ins["target"][0]] if rows.is_mean else [losses]
    return launch(bodies, "mean_of_rows", total, operands, [op.results[0].type], (rows.count,), 1)
