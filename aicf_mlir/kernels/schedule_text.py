"""The schedule of a generated kernel as text: how its work is divided, which decides the bits of its sums and its speed.

    rows width=4 lanes=32 chunks=2 block=64

A form, and its numbers; one that is 0 is not written. It stands in the kernel id, `gen_rowwise_0123456789ab[rows width=4 …]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aicf_mlir.errors import SelectionError
from aicf_mlir.kernels.kernel import Kernel

_TEXT = re.compile(r"[a-z]+( [a-z]+=[1-9][0-9]{0,8})*")
_ID = re.compile(r"([a-z_0-9]+)(?:\[([^\]]*)\])?")


@dataclass(frozen=True)
class ScheduleText:
    """A form and its numbers, in the order in which they are written."""

    form: str
    numbers: Mapping[str, int]

    @staticmethod
    def parse(text: str, forms: Mapping[str, Sequence[str]]) -> ScheduleText:
        """The schedule; SelectionError unless it is one of `forms`, each with the names of its numbers."""
        if _TEXT.fullmatch(text) is None:
            raise SelectionError(
                f"expected a schedule such as {example(forms)!r}, its numbers from 1 on, got {text!r}"
            )
        form, *words = text.split(" ")
        if form not in forms:
            raise SelectionError(f"expected a schedule of form {' or '.join(forms)}, got {text!r}")
        numbers: dict[str, int] = {}
        for name, _, number in (word.partition("=") for word in words):
            if name not in forms[form] or name in numbers:
                raise SelectionError(
                    f"schedule {text!r}: expected each of {', '.join(forms[form])} once at most, got {name}"
                )
            numbers[name] = int(number)
        return ScheduleText(form, numbers)

    def __str__(self) -> str:
        return " ".join([self.form, *(f"{name}={number}" for name, number in self.numbers.items() if number)])

    def __getitem__(self, name: str) -> int:
        return self.numbers.get(name, 0)


class Schedules(NamedTuple):
    """Those of one kind of kernels on a target."""

    text_of: Callable[[Kernel], str]
    """The schedule that a kernel has, its own or the one that is chosen. Raises SelectionError for one that it cannot have."""
    candidates: Callable[[Kernel], list[str]]
    """All that are worth measuring, the one that is chosen first."""


def example(forms: Mapping[str, Sequence[str]]) -> str:
    """A text of the first form."""
    form, names = next(iter(forms.items()))
    return " ".join([form, *(f"{name}=1" for name in names)])


def divided_id(kernel_id: str) -> tuple[str, str]:
    """The id without a schedule, and the schedule; "" for none."""
    found = _ID.fullmatch(kernel_id)
    return (kernel_id, "") if found is None else (found[1], found[2] or "")


def powers(most: int, least: int = 1) -> Iterator[int]:
    """Powers of two from `least` to `most`."""
    while least <= most:
        yield least
        least *= 2


def expect(text: str, name: str, number: int, allowed: Sequence[int] | range, of: str = "") -> None:
    """Raise SelectionError unless a number of the schedule is allowed."""
    if number not in allowed:
        shown = f"{allowed[0]} to {allowed[-1]}" if isinstance(allowed, range) and allowed else list(allowed)
        raise SelectionError(f"schedule {text!r}: expected {name} in {shown}{of}, got {number}")
