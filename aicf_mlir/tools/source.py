"""Reading the inputs and writing the outputs of the tools."""

from __future__ import annotations

import re
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO, TextIO

from aicf_mlir.ir.diagnostics import Source
from aicf_mlir.ir.reading import read_text, shown_path
from aicf_mlir.machine.atomic_file import expect_writable, write_file

_SEPARATOR = re.compile(r"^[ \t]*// -----.*$", re.MULTILINE)


def read_source(path: str) -> Source:
    """The text of a file, or of standard input for `-`; raises `LocatedError` if it is not text."""
    return read_text(lambda: _open_input(path), "<stdin>" if path == "-" else shown_path(path))


def _open_input(path: str) -> AbstractContextManager[BinaryIO]:
    if path != "-":
        return Path(path).open("rb")
    standard: TextIO | None = sys.stdin  # None where the caller closed it
    if standard is None:
        raise ValueError("standard input is closed")
    return nullcontext(standard.buffer)


def split_source(source: Source) -> list[Source]:
    """The pieces of `source` between lines that start with `// -----`, each knowing its first line."""
    pieces: list[Source] = []
    start = 0
    for separator in [*_SEPARATOR.finditer(source.text), None]:
        end = separator.start() if separator else len(source.text)
        first_line = source.line_and_column(start)[0]
        pieces.append(Source(source.name, source.text[start:end], first_line))
        start = separator.end() if separator else end
    return pieces


def expect_output(*paths: str | None) -> None:
    """Raise OSError where `write_output` could not write one of `paths` (None: nothing is written), before the work is done."""
    for path in paths:
        if path is not None and path != "-":
            expect_writable(path)


def write_output(path: str, text: str) -> None:
    """Write `text` to standard output for `-`, else to a file as `write_file` does."""
    if path != "-":
        write_file(path, text.encode())
        return
    standard: TextIO | None = sys.stdout  # None where the caller closed it
    if standard is None:
        raise OSError("standard output is closed")
    standard.write(text)
    standard.flush()
