"""Reading text that anybody may have written: one look at the file, of bounded size."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import BinaryIO, NoReturn

from aicf_mlir.ir.diagnostics import Diagnostic, LocatedError, Position, Source

MAX_BYTES = 32 << 20
"""Size of one file. 50,000 ops are about 10 MB."""


def shown_path(path: str) -> str:
    """The path as messages name it, also if it is no UTF-8."""
    return path.encode("utf-8", "replace").decode()


def read_text(open_input: Callable[[], AbstractContextManager[BinaryIO]], name: str) -> Source:
    """The text of the file that `open_input` opens, called `name`; raises `LocatedError` if it is not text."""
    try:
        with open_input() as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise LocatedError(Diagnostic("error", f"cannot be read: {reason}", Position(name))) from None
    if len(data) > MAX_BYTES:
        message = f"the text is longer than {MAX_BYTES:,} bytes, the most that is read"
        raise LocatedError(Diagnostic("error", message, Position(name)))
    return decode(data, name)


def decode(text: str | bytes, name: str) -> Source:
    """Text of at most `MAX_BYTES` of UTF-8 without NUL characters; anything else is a `LocatedError`."""
    if len(text) > MAX_BYTES:
        message = f"the text is {len(text):,} bytes long; at most {MAX_BYTES:,} are read"
        raise LocatedError(Diagnostic("error", message, Position(name)))
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            bad: bytes = error.object
            source = Source(name, bad.decode("utf-8", "replace"))
            position = len(bad[: error.start].decode("utf-8"))
            refuse(source, position, f"byte 0x{bad[error.start]:02x} is not UTF-8 text")
    source = Source(name, text)
    if (position := text.find("\0")) >= 0:
        refuse(source, position, "NUL character: this is not a text file")
    return source


def refuse(source: Source, position: int, message: str) -> NoReturn:
    """Raise a `LocatedError` with the caret at `position`."""
    raise LocatedError(Diagnostic("error", message, source.place(position)))
