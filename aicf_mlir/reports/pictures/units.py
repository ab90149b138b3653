"""Text of bytes, seconds and positions of an axis, in the usual units."""

from __future__ import annotations

from collections.abc import Sequence

BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
SECOND_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def short(value: float, digits: int = 2) -> str:
    """A number with at most `digits` decimals, without zeros at the end."""
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def counted(count: int, noun: str) -> str:
    """`1 launch`, `2 launches`."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{count} {noun}{'' if count == 1 else plural}"


def readable_bytes(count: int) -> str:
    """`14.5 KiB`, rounded to two decimals."""
    power = min(max(count.bit_length() - 1, 0) // 10, len(BYTE_UNITS) - 1)
    return f"{short(count / 1024**power)} {BYTE_UNITS[power]}"


def exact_bytes(count: int) -> str:
    """`14,848 B`."""
    return f"{count:,} B"


def readable_seconds(seconds: float) -> str:
    """`12.3 µs`, rounded to two decimals."""
    size, unit = next((row for row in SECOND_UNITS if seconds >= row[0]), SECOND_UNITS[-1])
    return f"{short(seconds / size)} {unit}" if seconds else "0 s"


def tick_seconds(seconds: float, step: float) -> str:
    """`1040 µs`, in the unit of the step between two ticks: no two of them are written alike."""
    size, unit = next((row for row in SECOND_UNITS if step >= row[0]), SECOND_UNITS[-1])
    return f"{short(seconds / size)} {unit}" if seconds else "0"


def byte_ticks(size: int, most: int) -> list[int]:
    """Return at most `most` + 1 multiples of a power of two from 0 to `size`: their labels are exact."""
    step = 1
    while size // step > max(most, 1):
        step *= 2
    return list(range(0, size + 1, step))


def decimal_step(length: float, most: int, steps: Sequence[int] = (1, 2, 5)) -> float:
    """The smallest of 1, 2, 5, 10, … (or 0.1, 0.01, …) that divides `length` into at most `most` parts."""
    if length <= 0:
        return 1.0
    power = 1.0
    while power * most > length:
        power /= 10
    while True:
        for step in steps:
            if step * power * most >= length:
                return step * power
        power *= 10
