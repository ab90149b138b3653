"""Write the launch of a chain in place of all ops that it computes, and the ops that continue from its sums after it."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.attributes import Symbol
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.dtypes import ELEMENT_TYPES
from aicf_mlir.ir.expect import with_shape
from aicf_mlir.ir.formula import Builder
from aicf_mlir.ir.locations import fused_location
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.passes.fuse.back_to_back.grow import ChainLink, Sum, made_late
from aicf_mlir.passes.fuse.back_to_back.plan import ChainPlan, is_plain
from aicf_mlir.passes.fuse.loops.emit import erase_unread, operand_at
from aicf_mlir.passes.fuse.views import in_place_of


def write(function: FuncOp, bodies: Bodies, plan: ChainPlan) -> KernelOp:
    """Write the launch of `plan` in the place of its first product, and erase the ops that it replaces."""
    block, links = function.body.block, plan.chain.links
    place = links[0].product
    position = {op: at for at, op in enumerate(block.ops)}
    for op in made_late(plan.reads, position, position[place]):
        op.detach()
        block.insert_op_before(op, place)
    xs = [operand_at(block, access.root, access.layout, place) for access in plan.xs]
    launch = kernel.BackToBackOp.launch(
        {"a": plan.a, "b": plan.bs, "x": xs},
        {"y": list(result_types(plan))},
        bodies=tuple(
            Symbol(bodies.symbol(planned.body, body_name(link)))
            for planned, link in zip(plan.links, links, strict=True)
        ),
        links=tuple(str(planned.text) for planned in plan.links),
        **({"behind": plan.behind} if plan.behind else {}),
    )
    ops = sorted(plan.ops, key=position.__getitem__)
    launch.location = fused_location(*ops)
    block.insert_op_before(launch, place)
    results = iter(launch.results)
    for value in (value for planned in plan.links for value in planned.values):
        if value.write:
            assert value.of is not None
            hand_over(value.of, next(results), place)
        if value.sums:
            columns = next(results)
            columns.name_hint = value.sums[0].member.results[0].name_hint
            for total in value.sums:
                (result,) = total.member.results
                unchanged = is_plain(total) and element_type(result) == element_type(columns)
                made = columns if unchanged else goes_on(columns, total, bodies, place)
                hand_over(result, made, place)
    if plan.writes_a:
        hand_over(plan.rounded, next(results), place)
    for outer in plan.over_rows:
        hand_over(outer.product.results[0], next(results), place)
    erase_unread(block)
    return launch


def result_types(plan: ChainPlan) -> list[Attribute]:
    """The type of each value that is written, then of its sum."""
    types: list[Attribute] = []
    for planned, link in zip(plan.links, plan.chain.links, strict=True):
        for value in planned.values:
            if value.write and value.of is not None:
                types.append(with_shape(value.of, link.shape))
            if value.sums:
                types.append(TensorType(ELEMENT_TYPES[value.sum_element], link.shape[1:]))
    types += [plan.rounded.type] if plan.writes_a else []
    return [*types, *(outer.product.results[0].type for outer in plan.over_rows)]


def hand_over(value: SSAValue, new: SSAValue, place: Operation) -> None:
    """Have all readers of `value` read `new`, in its shape and type; views are written before `place`."""
    new.name_hint = value.name_hint
    value.replace_all_uses_with(in_place_of(value, new, place))


def goes_on(columns: SSAValue, total: Sum, bodies: Bodies, place: Operation) -> SSAValue:
    """The result that a sum computes from the sums of columns: for each column, or for all of them together."""
    (result,), (count,) = total.member.results, shape_of(columns)
    attrs: Mapping[str, int] = {"reduced": 1} if total.is_total else {}
    kind, body = (kernel.RowwiseOp, total.behind) if total.is_total else (kernel.MapOp, after(total.behind))
    name = str(total.member.op.attrs.get("body", total.member.op.op_name))
    launch = kind.launch(
        {"x": [columns], "table": []},
        {"y": [result.type if total.is_total else with_shape(result, (count,))]},
        body=Symbol(bodies.symbol(body, name)),
        shape=[count],
        **attrs,
    )
    launch.location = total.member.op.location
    assert place.parent is not None
    place.parent.insert_op_before(launch, place)
    return launch.results[0]


def after(behind: Body) -> Body:
    """The body of the function of a sum, applied to the sum."""
    builder, values = Builder(behind.args), [0]
    for line in behind.lines:
        summed = line.op == "scalar.sum"
        made = (
            0 if summed else builder.line(line.op, [values[arg] for arg in line.args], line.type, line.attr)
        )
        values.append(made)
    return builder.finish(values[value] for value in behind.results)


def body_name(link: ChainLink) -> str:
    """The name of a link's body: after its launches, three of them at most."""
    members = [*link.maps, *(total.member for total in link.sums)]
    words = list(dict.fromkeys(str(m.op.attrs.get("body", m.op.op_name)) for m in members)) or ["product"]
    return "_".join(words) if len(words) <= 3 else f"{words[0]}_{words[1]}_to_{words[-1]}"
