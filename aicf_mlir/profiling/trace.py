"""A profile as trace events, for Perfetto and chrome://tracing.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.

One process, the step, with one thread, its device. Every run with marks is a complete event ("X") "step i", one after the other
from 0 on. It contains the layers, those of neighbouring launches as one, and these contain the launches, named as in the plan.
Times are in µs, to the nanosecond; an event is within the one around it exactly, for both are sums of the same whole numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aicf_mlir.profiling.profile import LaunchProfile, Profile

Event = dict[str, Any]

PROCESS, THREAD = 1, 1


def to_trace(profile: Profile) -> str:
    """The JSON object that Perfetto and chrome://tracing open."""
    document = {
        "traceEvents": [*_names(profile), *_events(profile)],
        "displayTimeUnit": "ns",
        "otherData": {"step": profile.step, "device": profile.device, "runs": profile.runs},
    }
    return json.dumps(document, allow_nan=False, ensure_ascii=False)


def _names(profile: Profile) -> Iterator[Event]:
    for kind, name in (("process_name", f"AICF {profile.step}"), ("thread_name", profile.device)):
        yield {"ph": "M", "name": kind, "pid": PROCESS, "tid": THREAD, "args": {"name": name}}


def _events(profile: Profile) -> Iterator[Event]:
    begin = 0
    for run in range(profile.runs):
        times = [round(launch.samples[run] * 1e9) for launch in profile.launches]
        yield _complete(f"step {run}", "step", begin, sum(times), {})
        numbered = groupby(zip(profile.launches, times, strict=True), key=lambda pair: pair[0].layer)
        for layer, group in numbered:
            own = list(group)
            if layer:
                yield _complete(layer, "layer", begin, sum(time for _, time in own), {})
            for launch, time in own:
                yield _complete(f"{launch.launch} {launch.op}", "launch", begin, time, _args(launch))
                begin += time


def _complete(name: str, category: str, begin: int, duration: int, args: dict[str, Any]) -> Event:
    """An event from `begin` on, both in nanoseconds."""
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "ts": begin / 1e3,
        "dur": duration / 1e3,
        "pid": PROCESS,
        "tid": THREAD,
        "args": args,
    }


def _args(launch: LaunchProfile) -> dict[str, Any]:
    return {
        "kernel": launch.kernel,
        "kernel_id": launch.kernel_id,
        "bytes": launch.nbytes,
        "flops": launch.flops,
        "floor_us": launch.floor * 1e6,
        "source": [f"{source.file}:{source.line}" for source in launch.source],
        "layer": launch.layer,
    }
