"""A tool that reads one file of IR and processes it, and one that writes a text about the plan of the file."""

from __future__ import annotations

import argparse
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import DiagnosticException

from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.errors import AicfError, VerifyError
from aicf_mlir.ir.diagnostics import LocatedError, Source
from aicf_mlir.ir.registry import check_target
from aicf_mlir.ir.verify import verify_module
from aicf_mlir.text.parsing import make_context, parse_source
from aicf_mlir.tools.command_line import OK, ToolParser, VersionAction, guarded
from aicf_mlir.tools.runnable import make_planned
from aicf_mlir.tools.source import expect_output, read_source, write_output


class OneFile(ABC):
    """One run of the tool; every error in the file is raised as LocatedError."""

    def __init__(self, options: argparse.Namespace):
        """`options` has an `input`: a path, or "-" for standard input."""
        self.options = options
        self.source: Source | None = None
        """The source that was read."""

    def run(self) -> int:
        """Read, parse and verify the file, apply the tool, and return the exit code."""
        context = make_context()
        self.source = read_source(self.options.input)
        parsed = parse_source(context, self.source)
        try:
            verify_module(parsed.module)
            return self.use(context, parsed.module)
        except (DiagnosticException, AicfError) as error:
            raise LocatedError(parsed.locator.describe(error)) from error

    @abstractmethod
    def use(self, context: Context, module: ModuleOp) -> int:
        """Apply the tool to a verified module and return the exit code."""


class OnePlan(OneFile):
    """One run of the tool."""

    name: ClassVar[str]
    description: ClassVar[str]
    output: ClassVar[str]
    """The name of its output in the help."""

    @abstractmethod
    def text(self, program: ProgramOp) -> str:
        """The text that is written about a verified plan; after an error no file is written."""

    @classmethod
    def add_options(cls, parser: ToolParser) -> None:
        """Add the options of this tool alone."""

    @classmethod
    def check_options(cls, parser: ToolParser, options: argparse.Namespace) -> None:
        """Refuse options that do not go together, by `parser.error`."""

    def use(self, context: Context, module: ModuleOp) -> int:
        """Plan and write."""
        expect_output(self.options.output)
        write_output(self.options.output, self.text(make_planned(module, context, self.options.target)))
        return OK

    @classmethod
    def main(cls, arguments: Sequence[str] | None = None) -> int:
        """Run the tool; returns 0, 1 for refused input, 2 for a wrong command line, 70 for a bug."""
        parser = ToolParser(cls.name, description=cls.description)
        add = parser.add_argument
        add("input", metavar="FILE", help="input, - for standard input")
        add("-o", dest="output", default="-", metavar=cls.output, help="output (default: standard output)")
        cls.add_options(parser)
        add("--target", metavar="T", help="target of a file above plan level: cpu (default), sm_80, sm_90, …")
        add("--debug", action="store_true", help="show the Python traceback of an internal error")
        add("--version", action=VersionAction)
        options = parser.parse(sys.argv[1:] if arguments is None else arguments)
        cls.check_options(parser, options)
        try:
            check_target(options.target or "cpu")
        except VerifyError as error:
            parser.error(str(error))
        tool = cls(options)
        return guarded(tool.run, cls.name, arguments, debug=options.debug, source=lambda: tool.source)
