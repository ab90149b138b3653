"""Parse text to a module: every tool and the API read IR here, and hostile text cannot harm them.

xDSL's parser is recursive and trusting: deep nesting overflows the Python stack, a splat of 70 bytes allocates gigabytes, and an
unterminated string takes exponential time. So the text is measured first, by one linear scan (`limits.check_text`), and then read
by a parser with bounds (`safe_parser.SafeParser`). Python's recursion limit stays unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.arith import Arith
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.dialects.math import Math
from xdsl.dialects.test import Test
from xdsl.utils.exceptions import DiagnosticException, ParseError

from aicf_mlir.dialects import get_all_dialects
from aicf_mlir.errors import AicfError
from aicf_mlir.ir.diagnostics import Diagnostic, LocatedError, Locator, Source
from aicf_mlir.ir.reading import decode
from aicf_mlir.text.limits import check_text
from aicf_mlir.text.safe_parser import SafeParser


@dataclass(frozen=True)
class ParsedModule:
    """A module with the text it came from; `locator` finds the line of an op for messages."""

    module: ModuleOp
    locator: Locator


def make_context(*, allow_unregistered: bool = False) -> Context:
    """A context that knows `builtin`, `func`, `test`, `arith`, `math` and the AICF dialects, loaded on first use."""
    context = Context(allow_unregistered=allow_unregistered)
    context.load_dialect(Builtin)
    context.load_dialect(Func)
    context.register_dialect("test", lambda: Test)
    context.register_dialect("arith", lambda: Arith)
    context.register_dialect("math", lambda: Math)
    for name, load in get_all_dialects().items():
        context.register_dialect(name, load)
    return context


def parse_source(context: Context, source: Source) -> ParsedModule:
    """Parse `source` without verifying it; every way in which it can be malformed is a `LocatedError`."""
    check_text(source)
    locator = Locator(source, positions := {})
    parser: SafeParser | None = None
    try:
        parser = SafeParser(context, source, positions)
        return ParsedModule(parser.parse_module(), locator)
    except ParseError as error:
        raise LocatedError(locator.describe(error)) from None
    except (
        Exception
    ) as error:  # attributes raise any error of their conversions: OverflowError, ValueError, …
        place = source.place(parser.pos if parser else 0)
        message = f"cannot be parsed: {error or type(error).__name__}"
        raise LocatedError(Diagnostic("error", message, place)) from error


def parse_module(text: str | bytes, name: str = "<text>", context: Context | None = None) -> ModuleOp:
    """Parse and verify `text`; raises `LocatedError` (a `VerifyError`) that names `name`, line and column."""
    from aicf_mlir.ir.verify import verify_module

    parsed = parse_source(context or make_context(), decode(text, name))
    try:
        verify_module(parsed.module)
    except (DiagnosticException, AicfError) as error:
        raise LocatedError(parsed.locator.describe(error)) from error
    return parsed.module
