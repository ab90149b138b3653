"""Implementations for xDSL's interpreter, made from a table of meanings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.ir import Operation

from aicf_mlir.interpreters.arithmetic import ROUNDED, Arithmetic
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.generated import GeneratedInterface
from aicf_mlir.ir.properties import bool_attr
from aicf_mlir.ir.tensor_op import element_type, shape_of

Operands = Sequence[Array]
"""The operands of an op: floats as float64, integers as they are."""

Meaning = Callable[[Any, Operands], Array | tuple[Array, ...]]
"""A function from an op and its operands to its result, or its results, before they are rounded."""


@dataclass(frozen=True)
class WithArithmetic:
    """A meaning that depends on more of the arithmetic than on its roundings."""

    compute: Callable[..., tuple[Array, ...]]
    """Of an op, its operands and `arithmetic`."""

    def within(self, arithmetic: Arithmetic) -> Meaning:
        """The meaning in this arithmetic."""
        return partial(self.compute, arithmetic=arithmetic)


class ArithmeticFunctions(InterpreterFunctions):
    """Implementations of ops that compute with an `Arithmetic`."""

    def __init__(self, arithmetic: Arithmetic = ROUNDED):
        self.arithmetic = arithmetic


def run_meaning(
    meaning: Meaning | WithArithmetic, op: Operation, operands: Operands, arithmetic: Arithmetic
) -> tuple[Array, ...]:
    """The results of `op`, each rounded once to the type that it declares."""
    with np.errstate(all="ignore"):
        widened = arithmetic.operands(operands, compared(op) if arithmetic.moves else ())
        allowed = op.properties.get("allow_tf32")
        factors = arithmetic.factors(widened, allowed == bool_attr(True))
        compute = meaning.within(arithmetic) if isinstance(meaning, WithArithmetic) else meaning
        values = compute(op, factors)
        results = values if isinstance(values, tuple) else (values,)
        rounded = [
            arithmetic.round(np.asarray(value), element_name(element_type(result)))
            for value, result in zip(results, op.results, strict=True)
        ]
    for value, result in zip(rounded, op.results, strict=True):
        if value.shape != shape_of(result):
            raise ValueError(f"{op.name}: computed shape {value.shape}, declared {shape_of(result)}")
    return tuple(rounded)


def compared(op: Operation) -> frozenset[int]:
    """The operands of an op that it compares as they are."""
    if not isinstance(op, GeneratedInterface):
        return frozenset()
    body, arguments = op.body(), op.arguments
    values = {arguments[number][0] for number in body.compared}
    return frozenset(number for number, operand in enumerate(op.operands) if operand in values)


def functions(
    name: str, meanings: Mapping[type[Operation], Meaning | WithArithmetic]
) -> type[ArithmeticFunctions]:
    """A class of implementations with one row of `meanings` for each op."""

    def implement(op_type: type[Operation], meaning: Meaning | WithArithmetic) -> Any:
        def run(
            self: ArithmeticFunctions, interpreter: Interpreter, op: Operation, args: PythonValues
        ) -> PythonValues:
            return run_meaning(meaning, op, args, self.arithmetic)

        return impl(op_type)(run)

    rows = {f"run_{op_type.name}": implement(op_type, meaning) for op_type, meaning in meanings.items()}
    return register_impls(type(name, (ArithmeticFunctions,), rows))
