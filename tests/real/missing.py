"""What real code needs that is still missing: the reasons, and the cases that each of them refuses (`missing.txt`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

REASONS: dict[str, str] = {
    "convolution": r"aten\.(conv\w*|convolution)\b",
    "pooling": r"aten\.\w*pool\w*",
    "complex numbers": r"complex numbers|complex(64|128)|Fourier transform",
    "scatter_reduce": r"aten\.scatter_reduce",
    "integer concatenation": r"aten\.cat\.default\(int64.*arithmetic on int64",
    "shape from values": r"shape depends on values",
    "number of selected elements": r"on the elements under a mask",
    "value read": r"the step (branches on|depends on|reads) the value of a tensor",
    "random numbers of Python": r"draws random numbers of Python's random",
    "state kept by Python": r"the step changes what .* holds at a call, and computes with it",
    "buffer that starts empty": r"assigns to the buffer .* where there was (None|\w+\[0\])",
    "buffer of another shape": r"assigns to the buffer .* where there was",
    "gradient of the step": r"the step reads `\.grad`",
    "assignment by .data": r"replaces `\.data`",
    "write under no_grad": r"changes a tensor in place under `no_grad`",
}
"""By name, what the text of the refusal says; the first that fits is the reason."""

FILE = Path(__file__).with_name("missing.txt")


def reason(text: str) -> str | None:
    """The reason of a refusal; None if no row of the table says it."""
    return next((name for name, pattern in REASONS.items() if re.search(pattern, text)), None)


def expected() -> dict[str, str]:
    """The reason by case; a case that does not stand there works."""
    lines = FILE.read_text().splitlines()
    return dict(line.rsplit(": ", 1) for line in lines if line and not line.startswith("#"))


def write(refused: Mapping[str, str]) -> None:
    """Make the table that of the last run."""
    head = "# case: reason. Every other case works. `python -m tests.real --write` makes it.\n"
    FILE.write_text(head + "".join(f"{name}: {why}\n" for name, why in sorted(refused.items())))
