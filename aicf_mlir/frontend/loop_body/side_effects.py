"""What a loop body changes of Python objects would happen once, while it is traced: it is refused and undone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

from aicf_mlir.frontend.reached import walk_from
from aicf_mlir.frontend.reads import ABSENT, Read
from aicf_mlir.frontend.source import of_function, trace_error

COMPARED: tuple[type, ...] = (int, float, str, bool, bytes, set, frozenset, deque)
"""Types whose values say whether something is as before."""


@contextmanager
def undone(function: Callable[..., Any]) -> Generator[None]:
    """Around a trace of `function`: TraceError where it has changed what it reaches, which is then as before."""
    places = [(read, read.value()) for read in walk_from(function, "body").reads]
    failed = True
    try:
        yield
        failed = False
    finally:
        changed = [(read, before) for read, before in places if not _same(read.value(), before)]
        for read, before in changed:
            _put_back(read, before)
        if changed and not failed:
            raise trace_error(
                f"the loop body changes {changed[0][0].path}, which would happen once, while it is traced; do so"
                " outside, with what the step returns",
                of_function(function),
            )


def _same(now: Any, before: Any) -> bool:
    """Whether the very same objects are there."""
    if isinstance(now, tuple) and isinstance(before, tuple):
        one, other = cast(tuple[Any, ...], now), cast(tuple[Any, ...], before)
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(now, COMPARED):
        return bool(now == before)
    return now is before


def _put_back(read: Read, before: Any) -> None:
    match read.kind:
        case "item" if before is ABSENT:
            read.owner.pop(read.key, None)
        case "item":
            read.owner[read.key] = before
        case "items":
            read.owner.clear()
            read.owner.update(before)
        case "members":
            read.owner[:] = before
        case "cell" if before is not ABSENT:
            read.owner.cell_contents = before
        case "slot" | "class" if before is not ABSENT:
            setattr(read.owner, read.key, before)
        case "equal":
            read.owner.clear()
            read.owner.update(before) if hasattr(read.owner, "update") else read.owner.extend(before)
        case _:
            pass
