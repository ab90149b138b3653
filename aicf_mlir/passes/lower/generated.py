"""Ops with a body of their own: each becomes one generated launch over its domain."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.nn.gradient_rows import with_arguments
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.attributes import Symbol
from aicf_mlir.ir.body import Body, Line
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.expect import with_shape
from aicf_mlir.ir.generated import GeneratedInterface
from aicf_mlir.ir.layouts import Layout, dense_strides, with_layout
from aicf_mlir.ir.roundings import written
from aicf_mlir.ir.tensor_op import element_type, shape_of, tensor_type
from aicf_mlir.passes.lower.sites import Sites, with_sites_as_arguments


def lower_generated(op: GeneratedInterface, bodies: Bodies, sites: Sites) -> list[Operation]:
    """A kernel.map, or where the op reduces a kernel.rowwise or kernel.colwise, on views of its operands.

    If neither the last nor the first dimensions are reduced, the kept ones come first. Tables are the last operands.
    """
    domain, reduced = op.domain, list(op.reduced_dims)
    rank = len(domain)
    if not reduced:
        kind, order = "map", list(range(rank))
    elif (
        reduced == list(range(len(reduced)))
        and len(reduced) < rank
        and not _stages(op.body()) > 1
        and not any(op.whole_results)
    ):
        kind, order = "colwise", list(range(rank))
    else:
        kind, order = "rowwise", [dim for dim in range(rank) if dim not in reduced] + reduced
    shape = [domain[dim] for dim in order]
    kept = shape[len(reduced) :] if kind == "colwise" else shape[: rank - len(reduced)]
    views: list[Operation] = []
    body, numbers = with_sites_as_arguments(op.body())
    arguments = [*op.arguments, *((sites.at(number, op), ()) for number in numbers)]
    tables_last = sorted(range(len(arguments)), key=lambda number: arguments[number][1] is None)
    operands = [
        _operand(value, dims, domain, order, views)
        if (index := op.picked.get(number)) is None
        else _picked(value, index, domain, views)
        for number, (value, dims) in enumerate(arguments)
        if dims is not None
    ]
    tables = [value for value, dims in arguments if dims is None]
    body = _renumbered(body, order)
    if tables_last != sorted(tables_last):
        body = with_arguments(body, tables_last)
    elements = [element_name(element_type(value)) for value in (*operands, *tables)]
    body = written(body, elements, [element_name(element_type(result)) for result in op.results])
    symbol = bodies.symbol(body, op.title)
    types = [
        TensorType(element_type(result), shape if whole else kept)
        for result, whole in zip(op.results, op.whole_results, strict=True)
    ]
    launch = getattr(kernel, f"{kind.capitalize()}Op").launch(
        {"x": operands, "table": tables},
        {"y": types},
        body=Symbol(symbol),
        shape=shape,
        **({"reduced": len(reduced)} if reduced else {}),
    )
    for result, own in zip(launch.results, op.results, strict=True):
        result.name_hint = own.name_hint
    after: list[Operation] = []
    results = [
        _result(made, result, whole, order, after)
        for made, result, whole in zip(launch.results, op.results, op.whole_results, strict=True)
    ]
    if all(made is value for made, value in zip(launch.results, results, strict=True)):
        return [*views, launch]
    last = [
        kernel.ReshapeOp.build_op([value], [own.type]) for value, own in zip(results, op.results, strict=True)
    ]
    return [*views, launch, *after, *last]


def _stages(body: Body) -> int:
    return max(body.stages, default=0)


def _operand(
    value: SSAValue,
    dims: Sequence[int],
    domain: Sequence[int],
    order: Sequence[int],
    views: list[Operation],
) -> SSAValue:
    """`value`, whose dimensions are `dims` of the domain, at each point of it in `order`: itself or a view."""
    shape = shape_of(value)
    strides = [0] * len(domain)
    for dim, size, stride in zip(dims, shape, dense_strides(shape), strict=True):
        strides[dim] = 0 if size == 1 else stride
    layout = Layout(tuple(domain[dim] for dim in order), tuple(strides[dim] for dim in order)).normal()
    if layout == Layout.dense(layout.shape) and layout.count == Layout.dense(shape).count:
        if layout.shape == shape:
            return value
        views.append(kernel.ReshapeOp.build_op([value], [with_shape(value, layout.shape)]))
    else:
        views.append(kernel.ViewOp.build_op([value], [with_layout(tensor_type(value), layout)]))
    return views[-1].results[0]


def _picked(value: SSAValue, index: int, domain: Sequence[int], views: list[Operation]) -> SSAValue:
    """One element of a vector, at each point of the domain."""
    layout = Layout(tuple(domain), (0,) * len(domain), index)
    views.append(kernel.ViewOp.build_op([value], [with_layout(tensor_type(value), layout)]))
    return views[-1].results[0]


def _result(
    made: SSAValue, own: SSAValue, whole: bool, order: Sequence[int], after: list[Operation]
) -> SSAValue:
    """The value that replaces a result of the op: moved dimensions go back."""
    if not whole or list(order) == sorted(order):
        return made if made.type == own.type else _reshaped(made, own.type, after)
    strides = dense_strides(shape_of(made))
    shape = [0] * len(order)
    back = [0] * len(order)
    for at, dim in enumerate(order):
        shape[dim], back[dim] = shape_of(made)[at], strides[at]
    view = kernel.ViewOp.build_op([made], [with_layout(tensor_type(made), Layout(tuple(shape), tuple(back)))])
    copy = kernel.CopyOp.launch([view], [with_shape(made, shape)])
    after += [view, copy]
    return copy.results[0]


def _reshaped(value: SSAValue, type_: Attribute, after: list[Operation]) -> SSAValue:
    after.append(kernel.ReshapeOp.build_op([value], [type_]))
    return after[-1].results[0]


def _renumbered(body: Body, order: Sequence[int]) -> Body:
    """The body over the dimensions in another order."""
    at = {dim: position for position, dim in enumerate(order)}
    lines = tuple(
        Line(line.op, line.args, line.type, at[line.attr])
        if line.op == "scalar.index" and isinstance(line.attr, int)
        else line
        for line in body.lines
    )
    return Body(body.args, lines, body.results)
