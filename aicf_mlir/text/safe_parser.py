"""xDSL's parser made safe: linear lexing, bounded types and literals, and ops that know their line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from math import prod
from typing import Any, NoReturn, TypeVar, cast

from xdsl.context import Context
from xdsl.dialects.builtin import (
    UNKNOWN_LOC,
    FileLineColLoc,
    IntAttr,
    ModuleOp,
    ShapedType,
    StringAttr,
)
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue, TypeAttribute
from xdsl.ir.affine import AffineMap, AffineSet
from xdsl.irdl import IRDLOperation, OptPropertyDef, VerificationContext
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.parser.generic_parser import ParserState
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Input, Position, Span, Token
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRToken, MLIRTokenKind, StringLiteral

from aicf_mlir.ir.diagnostics import Source
from aicf_mlir.ir.renamed import now_called
from aicf_mlir.text.budget import Budget
from aicf_mlir.text.limits import (
    MAX_ELEMENTS,
    MAX_INTEGER_WIDTH,
    MAX_LITERAL_ELEMENTS,
    MAX_RANK,
)

OpT = TypeVar("OpT", bound=Operation)

_RESULTS = re.compile(r"[\s\w%.$:,#-]*+=\s*")
"""`%a, %b:2 =`, perhaps on several lines."""


class SafeLexer(MLIRLexer):
    """The lexer with a string rule that cannot backtrack: xDSL's is exponential on an unterminated string.

    Its tokens count in the budget of the text.
    """

    def __init__(self, input: Input) -> None:
        super().__init__(input)
        self.budget = Budget(self._refuse)

    def _refuse(self, message: str) -> NoReturn:
        raise ParseError(Span(self.pos, self.pos + 1, self.input), message)

    def lex(self) -> MLIRToken:
        """The next token."""
        token = super().lex()
        self.budget.token(token.span.end - token.span.start)
        return token

    _string = re.compile(r'"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')

    def _lex_string_literal(self, start_pos: Position) -> MLIRToken:
        if self._string.match(self.input.content, start_pos) is None:
            raise ParseError(
                Span(start_pos, start_pos + 1, self.input),
                'string literal is not closed on its line, or has an escape other than \\n \\t \\\\ \\" \\HH',
            )
        token = super()._lex_string_literal(start_pos)
        if token.kind is MLIRTokenKind.BYTES_LIT and _is_utf8(StringLiteral.from_span(token.span)):
            return Token(
                MLIRTokenKind.STRING_LIT, token.span
            )  # "é" is printed as "\C3\A9" and is a string still
        return token


def _is_utf8(literal: StringLiteral) -> bool:
    try:
        literal.bytes_contents.decode()
    except UnicodeDecodeError:
        return False
    return True


class SafeParser(Parser):
    """The parser with bounds from `limits`. `positions` receives the place of every op's name."""

    def __init__(self, context: Context, source: Source, positions: dict[Operation, int]) -> None:
        super().__init__(context, "", source.name)
        self.source = source
        self.positions = positions
        self.first_use: dict[str, Span] = {}
        lexer = SafeLexer(Input(source.text, source.name))
        self.budget = lexer.budget
        self._parser_state = ParserState(lexer)

    # Ops

    def parse_module(self, allow_implicit_module: bool = True) -> ModuleOp:
        """The whole text as one module; a value that is used and never defined is reported at its use."""
        try:
            module = super().parse_module(allow_implicit_module)
        except ParseError as error:
            if error.msg.startswith("values used but not defined"):
                name = next(iter(self.forward_ssa_references))
                self.raise_error(f"value %{name} is used but never defined", self.first_use[name])
            if error.msg == "Could not parse entire input!":
                self.raise_error("expected an operation, such as func.func or plan.program", error.span.start)
            raise
        return self._located(module, 0)

    def parse_operation(self) -> Operation:
        """One op. An op without a written `loc(…)` is located at its own line."""
        start = self._name_position()
        self.budget.operation()
        op = super().parse_operation()
        self.positions[op] = start
        return self._located(op, start)

    def _located(self, op: OpT, position: Position) -> OpT:
        if op.location == UNKNOWN_LOC:
            line, column = self.source.line_and_column(position)
            op.location = FileLineColLoc(StringAttr(self.source.name), IntAttr(line), IntAttr(column))
        return op

    def _parse_generic_operation(self, op_type: type[Operation]) -> Operation:
        """An op in generic form, its properties checked: the verifiers of ops inside it rely on them."""
        start = self.pos
        op = super()._parse_generic_operation(op_type)
        if not isinstance(op, IRDLOperation):
            return op
        for name, definition in op.get_irdl_definition().properties.items():
            value = op.properties.get(name, definition.default_value)
            if value is None and not isinstance(definition, OptPropertyDef):
                self.raise_error(f"'{op.name}' must have a property '{name}'", start)
            if value is not None:
                try:
                    definition.constr.verify(value, VerificationContext())
                except VerifyException as error:
                    self.raise_error(f"property '{name}' of '{op.name}': {error}", start)
        return op

    def _name_position(self) -> int:
        """The position of the next op's name: after the results and the equals sign."""
        start = self.pos
        if self._current_token.kind is not MLIRTokenKind.PERCENT_IDENT:
            return start
        behind = _RESULTS.match(self.source.text, start)
        return behind.end() if behind else start

    def _get_op_by_name(self, name: str) -> type[Operation]:
        """The op called `name`; an unknown name is answered with the nearest known ones."""
        stack = self._parser_state.dialect_stack
        if (found := self.ctx.get_optional_op(name, dialect_stack=stack)) is not None:
            return found
        position = max(self.source.text.rfind(name, 0, self.pos), 0)
        dialect = self.ctx.get_optional_dialect(name.split(".")[0])
        if dialect is None:
            known = ", ".join(sorted(self.ctx.registered_dialect_names))
            self.raise_error(f"operation '{name}' is of no known dialect; known dialects: {known}", position)
        near = get_close_matches(name, [op.name for op in dialect.operations], 3)
        advice = now_called(name) or (f"did you mean {' or '.join(near)}?" if near else "")
        hint = f"; {advice}" if advice else ""
        return self.raise_error(f"dialect {dialect.name} has no operation '{name}'{hint}", position)

    def resolve_operand(self, operand: UnresolvedOperand, type: Any) -> SSAValue[Any]:
        """The value of an operand; remembers the first use of a name, in case it is never defined."""
        self.first_use.setdefault(operand.operand_name, operand.span)
        return super().resolve_operand(operand, type)

    def parse_optional_argument(self, expect_type: Any = True) -> Any:
        """An argument of a function, which may have a long label."""
        parse = cast(Callable[[Any], Any], super().parse_optional_argument)
        if (argument := parse(expect_type)) is not None:
            self.budget.allow_argument()
        return argument

    def _register_ssa_definition(self, name: str, values: Sequence[SSAValue], span: Span) -> None:
        for value in values:
            if isinstance(value, BlockArgument):
                self.budget.argument()
        super()._register_ssa_definition(name, values, span)

    # Types and attributes

    def _parse_optional_integer_or_float_type(self) -> TypeAttribute | None:
        token = self._current_token
        written = re.fullmatch(r"[su]?i(\d+)", token.text) if token.kind is MLIRTokenKind.BARE_IDENT else None
        if written and int(written[1]) > MAX_INTEGER_WIDTH:
            self.raise_error(f"integer type of {written[1]} bits; at most {MAX_INTEGER_WIDTH} are supported")
        return super()._parse_optional_integer_or_float_type()

    def parse_ranked_shape(self) -> tuple[list[int], Attribute]:
        """The dimensions and element type of a tensor or memref, of bounded rank and size."""
        start = self.pos
        shape, element = super().parse_ranked_shape()
        self._check_shape(shape, start)
        return shape, element

    def _parse_vector_attrs(self) -> Any:
        start = self.pos
        vector = super()._parse_vector_attrs()
        self._check_shape(vector.get_shape(), start)
        return vector

    def _check_shape(self, shape: Any, start: Position) -> None:
        if len(shape) > MAX_RANK:
            self.raise_error(f"{len(shape)} dimensions; at most {MAX_RANK} are supported", start)
        if prod(max(1, dimension) for dimension in shape) > MAX_ELEMENTS:  # ? is negative
            self.raise_error(f"tensor of more than 2^{MAX_ELEMENTS.bit_length() - 1} elements", start)

    def _parse_dense_literal_type(self) -> Any:
        start = self.pos
        shaped = super()._parse_dense_literal_type()
        assert isinstance(shaped, ShapedType)
        if (count := prod(shaped.get_shape())) > MAX_LITERAL_ELEMENTS:
            limit = f"{MAX_LITERAL_ELEMENTS:,}"
            self.raise_error(
                f"dense literal of {count:,} elements; at most {limit}: pass large tensors as arguments",
                start,
            )
        self.budget.literal(count)
        return shaped

    def parse_affine_map(self) -> AffineMap:
        """Refused: no dialect here uses affine maps."""
        self._refuse_affine()

    def parse_affine_set(self) -> AffineSet:
        """Refused: no dialect here uses affine sets."""
        self._refuse_affine()

    def _refuse_affine(self) -> NoReturn:
        self.raise_error("affine maps and sets are not part of the AICF dialects")

    # Aliases: `#1 = [#0, #0]` doubles with every line

    def _parse_alias_def(self) -> None:
        name = self._current_token.text
        super()._parse_alias_def()
        self.budget.define(name, self.attribute_aliases[name])

    def _parse_extended_type_or_attribute(self, attr_or_dialect_name: str, is_type: Any) -> Any:
        value = super()._parse_extended_type_or_attribute(attr_or_dialect_name, is_type)
        self.budget.use(value)
        return value

    def _parse_file_metadata_dictionary(self) -> None:
        self.raise_error("file metadata and resources are not part of the AICF dialects")
