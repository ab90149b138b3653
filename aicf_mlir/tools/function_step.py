"""A function of nn, optim or kernel ops as something to run: by the reference interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from aicf_mlir.dialects.base import AnyTensor, shape_of
from aicf_mlir.dialects.element_types import element_name
from aicf_mlir.dialects.signature import STATUS, argument_labels, result_labels, return_op
from aicf_mlir.errors import BindError
from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.tools.tensors import Tensor, check_memory


class FunctionStep:
    """The one function of a module. Results that update an argument are its value in the next step."""

    def __init__(self, module: ModuleOp):
        functions = [op for op in module.ops if isinstance(op, func.FuncOp) and not op.is_declaration]
        if len(functions) != 1:
            raise BindError(f"expected one function to run, got {len(functions)}")
        self.module = module
        self.function = functions[0]
        self.arguments = self._arguments()
        self.results = [
            label.name or ("loss" if label.role == "loss" else f"result{index}")
            for index, label in enumerate(result_labels(self.function))
        ]
        self.roles = [label.role for label in result_labels(self.function)]
        return_op(self.function)
        check_memory(8 * self._elements(), f"@{self.function.sym_name.data}, in float64,")

    def _elements(self) -> int:
        """Of all arguments and intermediate values: the interpreter keeps them."""
        results = [result for op in self.function.body.walk() for result in op.results]
        return sum(prod(shape_of(value)) for value in (*self.function.body.block.args, *results))

    def _arguments(self) -> list[Tensor]:
        arguments: list[Tensor] = []
        labels = argument_labels(self.function)
        for index, (value, label) in enumerate(zip(self.function.body.block.args, labels, strict=True)):
            name = label.name or value.name_hint or f"arg{index}"
            arguments.append(
                Tensor(name, label.role or "input", *tensor_spec(self.function, value), classes_of(value))
            )
        return arguments

    def run(self, values: Mapping[str, Array], steps: int = 1) -> dict[str, Array]:
        """Results of the last of `steps` steps by name; gradients as `NAME.grad`, updates as the argument."""
        current = dict(values)
        results: dict[str, Array] = {}
        for _ in range(steps):
            produced = run_function(self.module, [current[argument.name] for argument in self.arguments])
            for name, role, value in zip(self.results, self.roles, produced, strict=True):
                results[f"{name}.grad" if role == "grad" else name] = value
                if role in ("update", STATUS):
                    current[name] = value
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
    """The number of classes of a loss that has `value` as class indices; 2 if there is none."""
    for use in value.uses:
        if "cross_entropy" in use.operation.name:
            return next((shape[1] for x in use.operation.operands if len(shape := shape_of(x)) == 2), 2)
    return 2
