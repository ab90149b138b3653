"""A profile to be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from aicf_mlir.errors import BindError

if TYPE_CHECKING:
    from aicf_mlir.profiling.profile import LaunchProfile, Profile

HEADS = ("launch", "time", "least", "% of all", "bytes", "B/s", "flop", "flop/s", "of floor", "kernel", "at")
LEFT = ("launch", "kernel", "at")
"""Columns of words."""

PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))

OF_STEP = "the step as a whole"
"""The name for launches that belong to no layer: the optimizer, the loss."""


def table(profile: Profile, order: Literal["time", "plan"]) -> str:
    """The launches of `profile`, then sums by op and by layer, then the step. BindError for another order."""
    if order not in ("time", "plan"):
        raise BindError(f"a profile is printed by 'time' or in the order of the 'plan', got {order!r}")

    def layer(launch: LaunchProfile) -> str:
        return launch.layer

    launches = list(profile.launches)
    if order == "time":
        launches.sort(key=lambda launch: -launch.seconds)
    whole = sum(launch.seconds for launch in launches)
    blocks = [
        "\n".join(aligned(HEADS, (_row(launch, whole) for launch in launches))),
        *_sums("op", launches, whole, lambda launch: launch.op),
        *(_sums("layer", launches, whole, layer) if any(map(layer, launches)) else ()),
        "\n".join(_step(profile, whole)),
    ]
    return "\n\n".join(blocks)


def aligned(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows in columns as wide as they need; numbers to the right."""
    lines = [tuple(heads), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            f"{cell:{'<' if head in LEFT else '>'}{width}}"
            for cell, head, width in zip(line, heads, widths, strict=True)
        ).rstrip()
        for line in lines
    ]


def _row(launch: LaunchProfile, whole: float) -> tuple[str, ...]:
    seconds, flops = launch.seconds, launch.flops
    return (
        launch.launch,
        shown_time(seconds),
        shown_time(launch.least),
        _percent(seconds, whole),
        shown(launch.nbytes),
        shown(launch.nbytes / seconds) if seconds else "-",
        "-" if flops is None else shown(flops),
        shown(flops / seconds) if flops and seconds else "-",
        "-" if launch.share is None else f"{launch.share:.0%}",
        launch.kernel,
        ", ".join(part for part in (launch.place, launch.layer) if part),
    )


def _sums(
    what: str, launches: Sequence[LaunchProfile], whole: float, key: Callable[[LaunchProfile], str]
) -> Iterator[str]:
    by_name: dict[str, list[LaunchProfile]] = {}
    for launch in launches:
        by_name.setdefault(key(launch), []).append(launch)
    sums = {name: sum(launch.seconds for launch in own) for name, own in by_name.items()}
    rows = (
        (shown_time(sums[name]), _percent(sums[name], whole), str(len(by_name[name])), name or OF_STEP)
        for name in sorted(sums, key=lambda name: -sums[name])
    )
    yield "\n".join(
        f"{time:>10} {percent:>6} {count:>5}  {name}"
        for time, percent, count, name in (("time", "%", "count", what), *rows)
    )


def _step(profile: Profile, whole: float) -> Iterator[str]:
    on = profile.device if profile.threads is None else f"{profile.device}, {profile.threads} threads"
    yield f"{profile.step} on {on}: {len(profile.launches)} launches, the faster half of {profile.runs} runs"
    times = (
        ("the launches, a step with marks between them", whole, min(profile.of_run)),
        ("a step without marks", profile.seconds, profile.least),
    )
    for name, seconds, least in times:
        yield f"{shown_time(seconds):>10}, least {shown_time(least):>8}  {name}"
    products = ", ".join(
        f"product of {element} {'no kernel' if rate is None else f'{shown(rate)}flop/s'}"
        for element, rate in profile.rates.products.items()
    )
    copy = f"copy {shown(profile.rates.copy)}B/s"
    yield f"floor: {copy}{', ' if products else ''}{products}; over 100 % where caches hold what a launch moves"


def shown(number: float) -> str:
    """A number with a decimal prefix and four digits at most: `1.23 M`."""
    return _scaled(number, PREFIXES) or f"{number:.3g} "


def shown_time(seconds: float) -> str:
    """Seconds in the unit that suits: `12.3 µs`."""
    return _scaled(seconds, TIMES) or f"{seconds * 1e6:.2f} µs"


def _scaled(number: float, units: Sequence[tuple[float, str]]) -> str:
    """The number in the largest unit that is no more than it; empty if there is none."""
    for factor, unit in units:
        if number >= factor:
            digits = ".3g" if number < 999.5 * factor else ".0f"
            return f"{number / factor:{digits}} {unit}"
    return ""


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"
