"""The gradient of a pointwise op, one row for each operand: only the values that it needs are kept for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache

from aicf_mlir.dialects.nn.rows.row import FLOATS, Parameter, Partials, Pointwise
from aicf_mlir.ir.body import Body, is_float
from aicf_mlir.ir.body_derivative import derivative
from aicf_mlir.ir.formula import Builder, Scalar, trace

ZERO, PASSES = "zero", "passes"
"""A cotangent that is 0 everywhere, and one that equals that of the result."""


class Frozen:
    """Parameters as a key: equal are those with the same bits, so 0.0 and -0.0 are not."""

    def __init__(self, parameters: Mapping[str, Parameter]):
        self.parameters = dict(parameters)
        self._key = tuple(
            (name, value.hex() if isinstance(value, float) else value) for name, value in parameters.items()
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=4096)
def body_of(row: Pointwise, types: tuple[str, ...], elements: tuple[str, ...], parameters: Frozen) -> Body:
    """The body of a row on operands of these compute types and element types."""
    return trace(types, row.formula, elements=elements, **parameters.parameters)


@lru_cache(maxsize=4096)
def cotangents(row: Pointwise, types: tuple[str, ...], elements: tuple[str, ...], parameters: Frozen) -> Body:
    """The body from (dy, operands of `types`, y) to the cotangents of all operands; zero for masks."""
    element, own = next(each for each in zip(types, elements, strict=True) if is_float(each[0]))
    builder = Builder((element, *types, element), (own, *elements, own))
    given = [builder.scalar(number) for number in range(len(types) + 2)]
    zero = builder.constant(0.0, element)
    if row.gradient is None:
        backward = derivative(body_of(row, types, elements, parameters))
        found = iter(builder.inline(backward, range(len(types) + 1)))
        return builder.finish(next(found) if is_float(type_) else zero.value for type_ in types)
    gradient: Callable[..., Partials] = row.gradient
    made = gradient(*given, **parameters.parameters)
    parts = [made] if isinstance(made, Scalar) else made
    return builder.finish((zero if part is None else part).value for part in parts)


def only(body: Body, result: int) -> tuple[Body, tuple[int, ...]]:
    """The body of one of the results, without the arguments that it does not need; and the arguments that it needs."""
    lines = Builder(body.args)
    whole = lines.finish(lines.inline(body, range(len(body.args)))[result : result + 1])
    read = {arg for line in whole.lines for arg in line.args} | set(whole.results)
    needed = tuple(number for number in range(len(body.args)) if number in read)
    return with_arguments(whole, needed), needed


def with_arguments(body: Body, kept: Sequence[int]) -> Body:
    """The body with these of its arguments, the only ones that it reads."""
    builder = Builder([body.args[number] for number in kept])
    values = dict(zip(kept, range(len(kept)), strict=True))
    for number, line in enumerate(body.lines, len(body.args)):
        values[number] = builder.line(line.op, [values[arg] for arg in line.args], line.type, line.attr)
    return builder.finish(values[result] for result in body.results)


@cache
def gradients(row: Pointwise) -> tuple[Pointwise | str, ...]:
    """For each operand the row of its gradient, `ZERO` or `PASSES`; for float32 and the parameters' defaults.

    The row takes the values that the gradient needs of dy, the operands and y, by these names.
    """
    types = tuple("i1" if name in row.masks else "f32" for name in row.operands)
    whole = cotangents(row, types, types, Frozen(row.parameters))
    several = len(row.operands) - len(row.masks) > 1
    return tuple(_gradient(row, whole, operand, several) for operand in range(len(row.operands)))


def _gradient(row: Pointwise, whole: Body, operand: int, several: bool) -> Pointwise | str:
    body, needed = only(whole, operand)
    if not body.args or row.operands[operand] in row.masks:
        return ZERO
    if needed == (0,) and not body.lines:
        return PASSES
    names = ("dy", *row.operands, "y" if "y" not in row.operands else "result")
    suffix = f"_{row.operands[operand]}" if several else ""
    kept = tuple(names[number] for number in needed)

    def formula(*scalars: Scalar, **parameters: Parameter) -> Scalar:
        builder = scalars[0].builder
        known = next(scalar for scalar in scalars if scalar.is_float)
        types, elements = (
            tuple("i1" if name in row.masks else each for name in row.operands)
            for each in (known.type, known.element)
        )
        one, reads = only(cotangents(row, types, elements, Frozen(parameters)), operand)
        by_number = {number: scalar.value for number, scalar in zip(needed, scalars, strict=True)}
        return builder.scalar(builder.inline(one, [by_number[number] for number in reads])[0])

    return Pointwise(
        f"{row.name}_grad{suffix}",
        f"The cotangent of {row.operands[operand]} in nn.{row.name}.",
        formula,
        kept,
        masks=row.masks & set(kept),
        takes=FLOATS,
        parameters=row.parameters,
        words=row.words,
        differentiable=False,
    )
