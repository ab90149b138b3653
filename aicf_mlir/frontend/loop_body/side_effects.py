"""What a loop body changes of Python objects would happen once, while it is traced: it is refused and undone."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from aicf_mlir.frontend.reached import walk_from
from aicf_mlir.frontend.reads import is_same
from aicf_mlir.frontend.source import of_function, trace_error


@contextmanager
def undone(function: Callable[..., Any]) -> Generator[None]:
    """Around a trace of `function`: TraceError where it has changed what it reaches, which is then as before."""
    places = [(read, read.value()) for read in walk_from(function, "body").reads]
    failed = True
    try:
        yield
        failed = False
    finally:
        changed = [(read, before) for read, before in places if not is_same(read.value(), before)]
        for read, before in changed:
            read.put_back(before)
        if changed and not failed:
            raise trace_error(
                f"the loop body changes {changed[0][0].path}, which would happen once, while it is traced; do so"
                " outside, with what the step returns",
                of_function(function),
            )
