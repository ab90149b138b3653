"""Names that users give to tensors: of batch entries and of outputs."""

from __future__ import annotations

from aicf_mlir.frontend.source import trace_error
from aicf_mlir.ir.locations import SourceLocation


def expect_name(many: str, one: str, name: object, location: SourceLocation | None = None) -> None:
    """Raise TraceError unless `name` is text that is not empty; `many` and `one` name its kind."""
    if not isinstance(name, str) or not name:
        raise trace_error(f"the names of {many} must be strings that are not empty, got {name!r}", location)
    if not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name):
        raise trace_error(f"{one} {name!r} has a name that is no text: half of a surrogate pair", location)
