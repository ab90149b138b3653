"""A function of nn, optim or kernel ops as something to run: by the reference interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from aicf_mlir.dialects import kernel
from aicf_mlir.errors import BindError
from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.arithmetic import ROUNDED, Arithmetic
from aicf_mlir.interpreters.numerics import Array, widen
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.signature import Key, argument_keys, result_keys, return_op, steps
from aicf_mlir.ir.tensor_op import AnyTensor, shape_of
from aicf_mlir.runtime.host_memory import check_memory
from aicf_mlir.tools.tensors import NamedTensor, repeated, shown_names


class FunctionStep:
    """The one function of a module, private ones apart. Results that update an argument are its value in the next step."""

    def __init__(self, module: ModuleOp):
        functions = steps(module)
        if len(functions) != 1:
            raise BindError(f"expected one function to run, got {len(functions)}")
        self.module = module
        self.function = functions[0]
        self.arguments = self._arguments()
        self.results = result_keys(self.function)
        return_op(self.function)
        check_memory(8 * self._elements(), f"@{self.function.sym_name.data}, in float64,")

    @property
    def names(self) -> dict[Key, str]:
        """The displayed names of arguments and results."""
        return shown_names([*(argument.key for argument in self.arguments), *self.results])

    def _elements(self) -> int:
        """The number of elements of all arguments and intermediate values: the interpreter keeps them."""
        results = [result for op in self.function.body.walk() for result in op.results]
        return sum(prod(shape_of(value)) for value in (*self.function.body.block.args, *results))

    def _arguments(self) -> list[NamedTensor]:
        return [
            NamedTensor(name, role, *tensor_spec(self.function, value), classes_of(value))
            for value, (role, name) in zip(
                self.function.body.block.args, argument_keys(self.function), strict=True
            )
        ]

    def run(
        self, values: Mapping[Key, Array], steps: int = 1, arithmetic: Arithmetic = ROUNDED
    ) -> dict[Key, Array]:
        """Results of the last of `steps` steps; that of an update has the key of the argument, its next value."""
        current = {a.key: arithmetic.round(widen(values[a.key]), a.dtype) for a in self.arguments}
        results: dict[Key, Array] = {}
        for _ in range(steps):
            inputs = [current[argument.key] for argument in self.arguments]
            results = dict(zip(self.results, run_function(self.module, inputs, arithmetic), strict=True))
            current |= {key: value for key, value in results.items() if key in current}
        return results


def tensor_spec(function: func.FuncOp, value: SSAValue) -> tuple[str, tuple[int, ...]]:
    """Element type and static shape of an argument."""
    kind = value.type
    if not isa(kind, AnyTensor) or any(extent < 0 for extent in kind.get_shape()):
        message = (
            f"@{function.sym_name.data} has an argument of type {kind}; only tensors of static shape run"
        )
        function.emit_error(message, VerifyException(message))
    return element_name(kind.get_element_type()), kind.get_shape()


def classes_of(value: SSAValue) -> int:
    """The number of classes of a loss that has `value` as class indices; 2 if there is none.

    A loss that is written as loops reads each index together with all classes of its row: by a view that repeats it.
    """
    for use in value.uses:
        if "cross_entropy" in use.operation.name:
            return next((shape[1] for x in use.operation.operands if len(shape := shape_of(x)) == 2), 2)
        if isinstance(use.operation, kernel.ViewOp) and (found := repeated(use.operation.layout)):
            return found
    return 2
