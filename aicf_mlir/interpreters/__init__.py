"""The meaning of every level in NumPy: the truth that passes, kernels and devices must agree with."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.interpreter import Interpreter, PythonValues
from xdsl.ir import Operation

from aicf_mlir.errors import BindError
from aicf_mlir.interpreters.arithmetic import ROUNDED, Arithmetic
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.interpreters.plan import run_plan
from aicf_mlir.interpreters.runner import ArithmeticFunctions
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.signature import STATUS, ArgumentIndex, argument_labels, result_labels, steps
from aicf_mlir.ir.tensor_op import element_type, shape_of

__all__ = ["make_interpreter", "run_function", "run_plan"]


AfterEach = Callable[[Operation, tuple[Array, ...]], None]
"""Called after an op with its results."""


def run_function(
    module: ModuleOp,
    inputs: Sequence[Array],
    arithmetic: Arithmetic = ROUNDED,
    after_each: AfterEach | None = None,
) -> tuple[Array, ...]:
    """The results of the one function of `module`, of nn, optim and kernel ops, on `inputs` in argument order.

    Raises BindError when the module has not exactly one function in addition to private ones, or when the inputs differ from its
    arguments in number, dtype or shape.
    """
    functions = steps(module)
    if len(functions) != 1:
        raise BindError(f"expected a module of one function to run, got {len(functions)}")
    (function,) = functions
    _check_inputs(function, inputs, arithmetic)
    results = make_interpreter(module, arithmetic, after_each).call_op(function, tuple(inputs))
    return committed(function, inputs, results)


def make_interpreter(
    module: ModuleOp, arithmetic: Arithmetic = ROUNDED, after_each: AfterEach | None = None
) -> Interpreter:
    """An interpreter for the ops of `module`; `after_each` sees each op with its results."""
    from xdsl.interpreters.func import (
        FuncFunctions,
    )  # whose package loads xDSL's interpreters of all its dialects

    interpreter = Interpreter(module, listeners=() if after_each is None else (_Listener(after_each),))
    interpreter.register_implementations(FuncFunctions())
    for implementations in _implementations(module, arithmetic):
        interpreter.register_implementations(implementations)
    return interpreter


def committed(
    function: func.FuncOp, inputs: Sequence[Array], results: tuple[Array, ...]
) -> tuple[Array, ...]:
    """`results`; where their status has failed, every update is the old value of its argument."""
    labels = result_labels(function)
    statuses = [result for label, result in zip(labels, results, strict=True) if label.role == STATUS]
    if not any(status[0] != 0 for status in statuses):
        return results
    arguments = ArgumentIndex(argument_labels(function))
    return tuple(
        inputs[arguments.updated_by(label)[0]] if label.role == "update" else result
        for label, result in zip(labels, results, strict=True)
    )


class _Listener(Interpreter.Listener):
    def __init__(self, after_each: AfterEach):
        self._after_each = after_each

    def did_interpret_op(self, op: Operation, results: PythonValues) -> None:
        self._after_each(op, results)


IMPLEMENTATIONS: Mapping[str, tuple[str, str]] = {
    "nn": ("aicf_mlir.interpreters.nn", "NNFunctions"),
    "optim": ("aicf_mlir.interpreters.optim", "OptimFunctions"),
    "kernel": ("aicf_mlir.interpreters.kernel", "KernelFunctions"),
}
"""Module and class by dialect; imported when a module has ops of that dialect."""


def _implementations(module: ModuleOp, arithmetic: Arithmetic) -> list[ArithmeticFunctions]:
    """The implementations of the dialects that `module` uses."""
    used = {op.dialect_name() for op in module.walk()}
    rows = [row for dialect, row in IMPLEMENTATIONS.items() if dialect in used]
    return [getattr(importlib.import_module(path), name)(arithmetic) for path, name in rows]


def _check_inputs(function: func.FuncOp, inputs: Sequence[Array], arithmetic: Arithmetic) -> None:
    arguments = function.body.block.args
    name = function.sym_name.data
    if len(inputs) != len(arguments):
        raise BindError(f"@{name}: expected {len(arguments)} inputs, got {len(inputs)}")
    for index, (argument, given) in enumerate(zip(arguments, inputs, strict=True)):
        label = f"%{argument.name_hint}" if argument.name_hint else str(index)
        if not isinstance(argument.type, TensorType):
            raise BindError(f"@{name}, input {label}: only tensors can be given, not {argument.type}")
        dtype, shape = arithmetic.dtype(element_name(element_type(argument))), shape_of(argument)
        if (given.dtype, given.shape) != (dtype, shape):
            raise BindError(
                f"@{name}, input {label}: expected {dtype}{list(shape)}, got {given.dtype}{list(given.shape)}"
            )
