"""Python numbers of the user's that a step takes from the device: `meta=["model.alpha"]`.

While the step is traced, a 0-d tensor replaces the number, and the step gets that tensor as an argument. Afterwards the
number is back and is the source: a change of it changes the tensor before the next step.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from aicf_mlir.errors import BindError, TraceError
from aicf_mlir.frontend.reads import Read


@dataclass(frozen=True, eq=False)
class HostValue:
    """A number in the user's Python and the tensor that the step reads instead."""

    read: Read
    tensor: torch.Tensor
    """The 0-d tensor on the step's device; it is bound like every frozen tensor, and writing to it writes the step's
    memory.
    """

    def follow(self) -> None:
        """Set the tensor to the number. Raises BindError if the number no longer exists."""
        self.tensor.fill_(_number(self.read.path, self.read.value()))

    def write(self, value: float) -> None:
        """Set the number, and the tensor with it."""
        number = _number(self.read.path, value)
        self.put(number)
        self.tensor.fill_(number)

    def put(self, value: Any) -> None:
        """Set the value at the number's place."""
        if self.read.kind == "cell":
            self.read.owner.cell_contents = value
        else:
            self.read.owner[self.read.key] = value


def find_host_values(
    names: Sequence[str], reads: Sequence[Read], device: torch.device, dtype: torch.dtype
) -> dict[str, HostValue]:
    """Return the numbers called `names` among a trace's reads. Raises TraceError for a name that is none of them."""
    numbers = {
        read.path: read
        for read in reads
        if read.may_be_host_scalar
        and read.kind in ("item", "cell")
        and _is_number(read.value())
        and read.path
    }
    values: dict[str, HostValue] = {}
    for name in names:
        if name not in numbers:
            known = ", ".join(sorted(numbers)) or "none"
            raise TraceError(
                f"meta={name!r}: the step reads no number of that name; the numbers it reads: {known}"
            )
        tensor = torch.tensor(float(numbers[name].value()), device=device, dtype=dtype)
        values[name] = HostValue(numbers[name], tensor)
    return values


@contextmanager
def in_place_of_numbers(values: Sequence[HostValue]) -> Generator[None]:
    """Replace the numbers by the tensors while the block runs."""
    before = [(value, value.read.value()) for value in values]
    try:
        for value in values:
            value.put(value.tensor)
        yield
    finally:
        for value, number in before:
            value.put(number)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(name: str, value: Any) -> float:
    if not _is_number(value):
        raise BindError(f"host scalar {name!r}: expected a number, got {value!r}")
    return float(value)
