"""Reading text that anybody may have written: one look at the file, of bounded size."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import BinaryIO

from aicf_mlir.ir.diagnostics import Diagnostic, LocatedError, Place, Source
from aicf_mlir.text.limits import MAX_BYTES, decode


def shown_path(path: str) -> str:
    """A path as messages name it, also where it is no UTF-8."""
    return path.encode("utf-8", "replace").decode()


def read_text(open_input: Callable[[], AbstractContextManager[BinaryIO]], name: str) -> Source:
    """The text of what `open_input` opens, called `name`; raises `LocatedError` for what is not text."""
    try:
        with open_input() as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise LocatedError(Diagnostic("error", f"cannot be read: {reason}", Place(name))) from None
    if len(data) > MAX_BYTES:
        message = f"the text is longer than {MAX_BYTES:,} bytes, the most that is read"
        raise LocatedError(Diagnostic("error", message, Place(name)))
    return decode(data, name)
