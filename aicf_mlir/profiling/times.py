"""The times of launches in the JSON of a profile, for further processing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, cast

from aicf_mlir.analysis.launches import work_of
from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.errors import PlanError
from aicf_mlir.ir.diagnostics import Diagnostic, LocatedError, Position, Source
from aicf_mlir.profiling.profile import VERSION


def times_of(source: Source, program: ProgramOp) -> dict[str, float]:
    """The seconds of each launch of `program` by its symbol, of the profile in `source`.

    Raises LocatedError if it is no profile of this version, PlanError for the profile of another plan: another launch, or another
    kernel or size of one.
    """
    document = _document(source)
    measured = {row["launch"].removeprefix("@"): row for row in document["launches"]}
    for launch, work in zip(program.launches, work_of(program), strict=True):
        name, kernel = launch.symbol, launch.kernel_id.data
        if name not in measured:
            raise PlanError(f"{source.name}: the profile is of another plan: it lacks @{name}, {kernel}")
        if (other := measured[name]["kernel_id"]) != kernel:
            raise PlanError(
                f"{source.name}: the profile is of another plan: its @{name} ran {other}, here it is {kernel}"
            )
        if (other := measured[name]["bytes"]) != work.nbytes:
            raise PlanError(
                f"{source.name}: the profile is of another plan: its @{name} moved {other} bytes, here it is {work.nbytes}"
            )
    if more := measured.keys() - {launch.symbol for launch in program.launches}:
        raise PlanError(f"{source.name}: the profile is of another plan: it has @{min(more)}")
    return {name: float(row["seconds"]) for name, row in measured.items()}


def _document(source: Source) -> Mapping[str, Any]:
    found: Any = None
    try:
        found = json.loads(source.text)
        is_known = found["version"] == VERSION and all(map(_is_row, cast("list[Any]", found["launches"])))
    except (ValueError, KeyError, TypeError, RecursionError):
        is_known = False
    if not is_known:
        message = f"this is no profile of version {VERSION}, as aicf-run --time-json=FILE writes one"
        raise LocatedError(Diagnostic("error", message, Position(source.name)))
    return found


def _is_row(row: Any) -> bool:
    launch, kernel, seconds, nbytes = row["launch"], row["kernel_id"], row["seconds"], row["bytes"]
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    return (
        isinstance(launch, str)
        and isinstance(kernel, str)
        and type(nbytes) is int
        and is_number
        and seconds >= 0
        and isfinite(seconds)
    )
