"""What a sample is: one use of an op, with operand values and what torch computes from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation, Region

from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.errors import LoweringError
from aicf_mlir.interpreters.numerics import FLOATS, Array, round_to
from aicf_mlir.ir.dtypes import ELEMENT_TYPES, element_name
from aicf_mlir.ir.tensor_op import AnyTensor
from aicf_mlir.passes.lower import LowerPass

Fill = Callable[[np.random.Generator, tuple[int, ...]], Array]
"""Values of an operand."""

SPECIAL = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.5, 1e-40, -1e30, 1e30, 88.0, -88.0, 0.25)


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Standard normal, but for a gap around zero: relu has no derivative there."""
    values = rng.standard_normal(shape)
    return np.asarray(values + np.where(values < 0, -0.05, 0.05))


def positive(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Between 0.1 and 2: second moments, divisors."""
    return rng.uniform(0.1, 2.0, shape)


def unit(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Strictly between -1 and 1: results of tanh."""
    return np.tanh(normal(rng, shape))


def special(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """The special values in order, again and again."""
    return np.resize(np.array(SPECIAL), shape)


def special_slowly(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Each special value as often as there are special values: beside `special`, all pairs."""
    return np.resize(np.repeat(np.array(SPECIAL), len(SPECIAL)), shape)


def classes(count: int, *others: int) -> Fill:
    """Class indices below `count`, the first of them replaced by `others`."""

    def fill(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        indices = rng.integers(0, count, shape)
        indices.flat[: len(others)] = others
        return indices

    return fill


def value(number: float) -> Fill:
    """The same number everywhere."""
    return lambda rng, shape: np.full(shape, number)


def value_by_index(*numbers: float) -> Fill:
    """The elements of a vector."""
    return lambda rng, shape: np.array(numbers).reshape(shape)


@dataclass(frozen=True)
class Sample:
    """One use of an op."""

    name: str
    operands: tuple[str, ...]
    """Operand types such as "4x8xf32"; "4x1xcompute" is of the type that the elements are computed in, "3xsingle" always f32."""
    build: Callable[..., Operation]
    """The op from its operand values."""
    torch: Callable[..., Any]
    """The result, or results, from operands as torch tensors."""
    fills: Mapping[int, Fill] = field(default_factory=dict[int, Fill])
    """How operands other than `normal` are filled."""
    smooth: bool = True
    """Whether the f64 gradient check applies: not at special values, and not through a rounding."""
    in_range: bool = True
    """Whether float32 holds what is computed on the way: if not, kernels give NaN, as torch's do."""
    inner_units: float = 0.0
    """Units in the last place of f16 and bf16 for what kernels round to them on the way; see `Case`."""
    rounds_as_operands: bool = False
    """Whether what is rounded on the way has the type of the operands, also for a result of a wider one."""
    units: float = 1.0
    """Units in the last place between the op and torch in float64: more where a number of the formula is rounded to float32."""
    follow: Callable[[list[Array]], Mapping[int, Array]] | None = None
    """The operands that are not free: what an op has from another one that has seen the same operands."""

    def types(self, element: str | None = None) -> list[AnyTensor]:
        """The operand types, with `element` in the place of f32 if given."""
        compute = "f64" if element == "f64" else "f32"
        written = [text.replace("f32", element or "f32") for text in self.operands]
        return [parse_type(text.replace("compute", compute).replace("single", "f32")) for text in written]

    def block(self, element: str | None = None) -> Block:
        """A block of the operands."""
        return Block(arg_types=self.types(element))

    def module(self, element: str | None = None) -> ModuleOp:
        """A function of this one op."""
        block = self.block(element)
        op = self.build(*block.args)
        block.add_ops([op, func.ReturnOp(*op.results)])
        return ModuleOp([func.FuncOp("sample", (block.arg_types, op.result_types), Region(block))])

    def launch(self, element: str | None = None) -> KernelOp | None:
        """The launch of a registered kernel that the op lowers to, where it is one, of the operands as they are."""
        element = element or "f32"
        if element not in self._launches:
            self._launches[element] = self._lowered(element)
        return self._launches[element]

    @cached_property
    def _launches(self) -> dict[str, KernelOp | None]:
        return {}

    def _lowered(self, element: str) -> KernelOp | None:
        module = self.module(element)
        try:
            LowerPass().apply(Context(), module)
        except LoweringError:
            return None
        function = next(op for op in module.ops if isinstance(op, func.FuncOp))
        match list(function.body.block.ops):
            case [KernelOp() as launch, _] if tuple(launch.operands) == function.args:
                return None if isinstance(launch, GeneratedOp) else launch
            case _:
                return None

    def op_type(self) -> type[Operation]:
        """The class of the op."""
        return self._op_type

    @cached_property
    def _op_type(self) -> type[Operation]:
        return type(self.build(*self.block().args))

    def values(self, element: str | None = None, seed: int = 0) -> list[Array]:
        """Operand values, rounded to the operand types."""
        rng = np.random.default_rng(seed)
        arrays: list[Array] = []
        for index, type in enumerate(self.types(element)):
            name = element_name(type.get_element_type())
            fill = self.fills.get(index, normal if name in FLOATS else classes(2))
            arrays.append(round_to(np.asarray(fill(rng, type.get_shape())), name))
        for index, array in ({} if self.follow is None else self.follow(arrays)).items():
            arrays[index] = array.astype(arrays[index].dtype)
        return arrays


def parse_type(text: str) -> AnyTensor:
    """A tensor type from what stands between its angle brackets."""
    *dims, element = text.split("x")
    return TensorType(ELEMENT_TYPES[element], [int(d) for d in dims])


def tensors(*shapes: str) -> tuple[str, ...]:
    """Operand types of f32: "4x8" is "4x8xf32", "" is "f32"."""
    return tuple(f"{shape}xf32" if shape else "f32" for shape in shapes)


ALL = str(len(SPECIAL))
PAIRS = str(len(SPECIAL) ** 2)
RAGGED = ("", "1", "7", "3x5", "2x3x4", "1x1x9x2", "0x3")
