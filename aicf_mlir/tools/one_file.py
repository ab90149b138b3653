"""A tool that reads one file of IR and does one thing with it."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import DiagnosticException

from aicf_mlir.errors import AicfError
from aicf_mlir.ir.diagnostics import LocatedError, Source
from aicf_mlir.ir.verify import verify_module
from aicf_mlir.text.parsing import make_context, parse_source
from aicf_mlir.tools.source import read_source


class OneFile(ABC):
    """One run of the tool; every error in the file is raised as LocatedError."""

    def __init__(self, options: argparse.Namespace):
        """`options` has an `input`: a path, or "-" for standard input."""
        self.options = options
        self.source: Source | None = None
        """What was read."""

    def run(self) -> int:
        """Read, parse and verify the file, and do what the tool does; the exit code."""
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
        """What the tool does with a verified module; the exit code."""
