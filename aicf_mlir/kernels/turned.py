"""A colwise kernel as the rowwise one of the same meaning: its columns are rows that lie across."""

from __future__ import annotations

from dataclasses import replace

from aicf_mlir.ir.body import is_table
from aicf_mlir.kernels.kernel import Kernel, Tensor


def turned(kernel: Kernel) -> Kernel:
    """The rowwise kernel that reads and writes the same memory in the same way."""
    order = [*kernel.kept_dims, *kernel.reduced_dims]

    def over(tensor: Tensor) -> Tensor:
        shape, strides = (tuple(numbers[dim] for dim in order) for numbers in (tensor.shape, tensor.strides))
        return replace(tensor, shape=shape, strides=strides)

    lines = tuple(
        line._replace(attr=order.index(line.attr))
        if line.op == "scalar.index" and isinstance(line.attr, int)
        else line
        for line in kernel.body.lines
    )
    return replace(
        kernel,
        kind="rowwise",
        body=replace(kernel.body, lines=lines),
        domain=tuple(kernel.domain[dim] for dim in order),
        operands=tuple(
            tensor if is_table(type_) else over(tensor)
            for type_, tensor in zip(kernel.body.args, kernel.operands, strict=True)
        ),
        results=tuple(
            over(tensor) if kernel.is_whole(number) else tensor
            for number, tensor in enumerate(kernel.results)
        ),
    )
