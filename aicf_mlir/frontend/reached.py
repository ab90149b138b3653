"""The conversion of places that a trace has visited to the `Read`s that guard its step."""

from __future__ import annotations

import os
import types
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch

from aicf_mlir.frontend.custom_ops import registered_for
from aicf_mlir.frontend.exported_step import ExportedStep
from aicf_mlir.frontend.library import is_setting
from aicf_mlir.frontend.places import ARRAYS, DRAWN, PlaceNames, VisitedPlace
from aicf_mlir.frontend.reads import ABSENT, STRUCTURE, Read
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.torch_state import read_by_every_step
from aicf_mlir.frontend.values import is_a

TRACERS = ("torch.fx", "torch.export", "torch._", "aicf_mlir")
"""The modules of objects of torch.export and AICF that are read while they trace."""

CODE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, type)
"""The types of a name's value when it is looked up to be called."""

ENVIRONMENT: dict[Any, Any] = cast(Any, vars(os.environ))["_data"]


def collect(places: Sequence[VisitedPlace], names: Mapping[int, str]) -> list[Read]:
    """Return the dependencies of a step that has visited `places`; `names` gives paths of the user's objects by their
    ids.

    Raises TraceError for a place whose value changes with each read.
    """
    named = PlaceNames(places, names)
    mentioned = frozenset(_text(place.key) for place in places if place.key is not None)
    reads: dict[tuple[str, int, str], Read] = {}
    for place in places:
        if _is_tracers(place):
            continue
        if place.kind == "opaque":
            raise opaque_error(place, named)
        for read in _reads(place, named, mentioned):
            reads.setdefault(read.place, read)
    for kind in (torch.Tensor, torch.nn.Parameter):
        read = _of_type(kind, mentioned)
        reads.setdefault(read.place, read)
    return [*reads.values(), *read_by_every_step()]


def values_read(
    exported: ExportedStep, tensors: Mapping[torch.Tensor, str], names: Mapping[int, str]
) -> list[Read]:
    """Return reads of the tensors whose values the trace has used, and of the functions registered for custom ops.

    `tensors` names the modules' tensors, `names` is as in `collect`.
    """
    sources = exported.recorder.known.sources.values()
    named = PlaceNames(exported.places, names) if sources else None
    registered = [each for op in exported.recorder.custom_ops.values() for each in registered_for(op)]
    return registered + [
        Read(
            f"model.{tensors[tensor]}" if tensor in tensors else named.path(tensor) if named else "",
            "values",
            tensor,
            may_be_host_scalar=False,
        )
        for tensor in sources
    ]


def _reads(place: VisitedPlace, names: PlaceNames, mentioned: frozenset[str]) -> Iterator[Read]:
    owner, key = place.owner, place.key
    match place.kind:
        case _ if not place.read_first:
            pass
        case "item" | "content" if owner is ENVIRONMENT:
            yield Read("os.environ", "environment", os.environ, mentioned=mentioned)
        case "item" if type(key) is str:
            read = Read(names.name(place), "item", owner, key, mentioned)
            value = read.value()
            is_code = value is ABSENT or is_a(value, CODE) or key in STRUCTURE or key.endswith("_hooks")
            yield Read(
                read.path, "item", owner, key, mentioned, may_be_host_scalar=not is_code, is_code=is_code
            )
        case "item":
            yield Read(names.path(owner), "items", owner, mentioned=mentioned)
        case "class":
            yield _of_type(owner, mentioned)
        case "slot":
            yield Read(names.name(place), "slot", owner, key, mentioned)
        case "cell":
            yield Read(names.name(place), "cell", owner, mentioned=mentioned)
        case "context":
            yield Read(names.path(owner), "context", owner, mentioned=mentioned)
        case "code":
            yield Read(
                names.name(place), "code", owner, mentioned=mentioned, may_be_host_scalar=False, is_code=True
            )
        case "object":
            yield Read(
                names.path(owner),
                "object",
                owner,
                mentioned=mentioned,
                may_be_host_scalar=False,
                is_code=True,
            )
            yield _of_type(cast("type[Any]", type(owner)), mentioned)
        case "content":
            if (kind := _kind_of(owner)) is not None:
                yield Read(names.path(owner), kind, owner, mentioned=mentioned)
        case "setting" if is_setting(owner):
            yield Read(f"{names.path(owner)}()", "setting", owner, may_be_host_scalar=False)
        case _:
            pass


def _kind_of(owner: Any) -> Any:
    if is_a(owner, ARRAYS):
        return "bytes"
    if is_a(owner, dict):
        return "items"
    if is_a(owner, list):
        return "members"
    return "equal" if is_a(owner, (set, deque)) else None


def _of_type(kind: type, mentioned: frozenset[str]) -> Read:
    return Read(kind.__name__, "type", kind, mentioned=mentioned, may_be_host_scalar=False, is_code=True)


def _is_tracers(place: VisitedPlace) -> bool:
    """True if it belongs to a tracer; while one runs, objects of the user's may have classes of AICF's."""
    kinds = [place.owner if is_a(place.owner, type) else type(place.owner)]
    kinds += [type(place.holder)] if place.holder is not None else []
    kinds += [place.first] if place.kind == "object" else []
    return any(kind.__module__.startswith(TRACERS) for kind in kinds) and not is_a(place.owner, ARRAYS)


def opaque_error(place: VisitedPlace, names: PlaceNames) -> Exception:
    """Return the TraceError for a place whose next value cannot be known."""
    kind, path = cast("type[Any]", type(place.owner)), names.path(place.owner)
    if is_a(place.owner, DRAWN):
        return trace_error(
            f"the step reads {path!r}, a random generator ({kind.__name__}); a compiled step would repeat what it gave first;"
            " draw with torch (torch.rand), or outside of the step and pass the number as a tensor in the batch",
            place.location,
        )
    what = "an iterator" if hasattr(kind, "__next__") else "a queue"
    return trace_error(
        f"the step reads {path!r}, {what} ({kind.__name__}); a compiled step would repeat what it gave first; read from it"
        " outside the loss and pass the value in the batch",
        place.location,
    )


def _text(key: Any) -> str:
    return key.decode(errors="replace") if is_a(key, bytes) else str(key) if type(key) in (str, int) else ""
