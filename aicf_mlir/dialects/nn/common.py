"""Common parts of all nn ops: results whose types operands and attributes imply."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from xdsl.builder import Builder
from xdsl.dialects.builtin import DenseArrayBase, TensorType, i32
from xdsl.interfaces import HasCanonicalizationPatternsInterface
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    OperandDef,
    OptOperandDef,
    VarOperandDef,
    operand_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.pattern_rewriter import RewritePattern
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.expect import Value, expect_float, expect_tensors
from aicf_mlir.ir.generated import GeneratedInterface
from aicf_mlir.ir.interfaces import DifferentiableInterface, UnfoldableInterface
from aicf_mlir.ir.registry import Operand, segments
from aicf_mlir.ir.segments import parse_segments, print_segments
from aicf_mlir.ir.tensor_op import SEGMENT_SIZES, AnyTensor, TensorOp, tensor_type

COUNTS: Mapping[type[OperandDef], Literal["one", "optional", "many"]] = {
    OperandDef: "one",
    OptOperandDef: "optional",
    VarOperandDef: "many",
}
"""The schema's words for the kinds of operands."""


class NNOp(TensorOp, abc.ABC):
    """A pure op on statically shaped tensors; operands and attributes imply the types of its results."""

    LAUNCH: ClassVar[str | None] = None
    """The kernel op that is the same op, if it has another name than this one (`dialects/launches.py`)."""

    traits = traits_def(Pure())

    def __init__(self, **given: Any):
        """Build the op as xDSL does, with the properties in the order in which the class defines them, as they are read
        (`build_op`).
        """
        super().__init__(**given)
        order = self.get_irdl_definition().properties
        names = [name for name in order if name in self.properties]
        self.properties = {name: self.properties[name] for name in [*names, *self.properties]}

    @classmethod
    def operands_by_name(cls) -> list[Operand]:
        """The operands if several may be absent, so that the text has to tell which of them are present."""
        definition = cls.get_irdl_definition()
        if not any(isinstance(option, AttrSizedOperandSegments) for option in definition.options):
            return []
        return [Operand(name, COUNTS[type(row)]) for name, row in definition.operands]

    def print_operands(self, printer: Printer) -> None:
        if not (rows := self.operands_by_name()):
            super().print_operands(printer)
            return
        sizes: Any = self.properties[SEGMENT_SIZES[0]]
        print_segments(printer, segments(rows, sizes.get_values(), self.operands), printer.print_operand)

    @classmethod
    def parse_operands(cls, parser: Parser) -> tuple[list[UnresolvedOperand], dict[str, Attribute]]:
        if not (rows := cls.operands_by_name()):
            return super().parse_operands(parser)
        values = parse_segments(parser, cls.name, rows, parser.parse_unresolved_operand)
        sizes = [len(values.get(row.name, ())) for row in rows]
        listed = [value for row in rows for value in values.get(row.name, ())]
        return listed, {SEGMENT_SIZES[0]: DenseArrayBase.from_list(i32, sizes)}

    @abc.abstractmethod
    def inferred_types(self) -> Sequence[AnyTensor]:
        """The only legal result types; raises VerifyException for illegal operands or attributes."""

    def verify_(self) -> None:
        expect_tensors(self)
        expected = self.inferred_types()
        for index, (wanted, got) in enumerate(zip(expected, self.result_types, strict=True)):
            if got != wanted:
                which = f" of result {index}" if len(expected) > 1 else ""
                raise VerifyException(f"expected result type {wanted}{which}, got {got}")


class ValueOp(NNOp, abc.ABC):
    """An op with one result, as nearly all are."""

    result = result_def(TensorType)

    @abc.abstractmethod
    def inferred_type(self) -> AnyTensor:
        """The only legal result type; raises VerifyException for illegal operands or attributes."""

    def inferred_types(self) -> Sequence[AnyTensor]:
        return [self.inferred_type()]


class Canonicalized(HasCanonicalizationPatternsInterface):
    """An op with canonical forms. A form names other ops, so the file that has all forms is above the files of the ops."""

    FORMS: ClassVar[Callable[[type[Operation]], tuple[RewritePattern, ...]]]
    """`canonicalization.patterns_of`, set when the dialect is loaded."""

    @classmethod
    def get_canonicalization_patterns(cls) -> tuple[RewritePattern, ...]:
        return Canonicalized.FORMS(cls)


class UnfoldsBody(GeneratedInterface, UnfoldableInterface, abc.ABC):
    """A generated op, mostly a gradient, whose body is written as other ops where it is differentiated (`unfolding`)."""

    UNFOLD: ClassVar[Callable[[GeneratedInterface, Builder], Sequence[SSAValue]]]
    """`unfolding.unfold`, set when the dialect is loaded."""

    def unfold(self, builder: Builder) -> Sequence[SSAValue]:
        return UnfoldsBody.UNFOLD(self, builder)


class UnaryOp(ValueOp, DifferentiableInterface, abc.ABC):
    """An op of one operand of floats, whose type its result has."""

    x = operand_def(TensorType)

    def __init__(self, x: Value, **properties: Attribute):
        super().__init__(operands=[x], properties=properties, result_types=[tensor_type(x)])

    def inferred_type(self) -> AnyTensor:
        expect_float("the operand", self.x)
        return tensor_type(self.x)
