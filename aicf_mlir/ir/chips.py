"""What schedules for a GPU follow from, by architecture: a row a chip.

The row of sm_90 was measured on an H200. The others are of data sheets: sizes as they are, and of each rate the share that an
H200 reaches of its own. Nothing was timed there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Chip:
    """One row."""

    processors: int
    """Multiprocessors."""
    shared: int
    """Bytes of shared memory of a multiprocessor."""
    shared_of_block: int
    """Bytes of it that one block may have."""
    cache: int
    """Bytes of the cache that all multiprocessors share."""
    copied: float
    """Bytes that a copy moves in a microsecond, reads and writes together."""
    narrow: float
    """Floating-point operations a microsecond of products of f16 and bf16."""
    wide: float
    """Those of f32, without TF32."""
    double: float
    """Those of f64."""

    @property
    def filling(self) -> int:
        """The threads that fill the chip, a power of two."""
        return 1 << (self.processors * 2048).bit_length() - 1

    def computed(self, element: str | None) -> float:
        """The operations a microsecond of products of an element type; of f32 for a type without products."""
        by_type = {"f16": self.narrow, "bf16": self.narrow, "f64": self.double}
        return self.wide if element is None else by_type.get(element, self.wide)


_ORIN = Chip(16, 164 * KIB, 163 * KIB, 4 * MIB, 0.17e6, 30e6, 4e6, 0.1e6)
_THOR = Chip(20, 228 * KIB, 227 * KIB, 32 * MIB, 0.2e6, 150e6, 6e6, 0.1e6)
_BLACKWELL = Chip(148, 228 * KIB, 227 * KIB, 126 * MIB, 6.5e6, 1300e6, 55e6, 30e6)

CHIPS: Mapping[str, Chip] = {
    "sm_75": Chip(40, 64 * KIB, 64 * KIB, 4 * MIB, 0.25e6, 35e6, 5e6, 0.15e6),  # T4
    "sm_80": Chip(108, 164 * KIB, 163 * KIB, 40 * MIB, 1.6e6, 190e6, 14e6, 8e6),  # A100
    "sm_86": Chip(84, 100 * KIB, 99 * KIB, 6 * MIB, 0.6e6, 90e6, 20e6, 0.4e6),  # A40
    "sm_87": _ORIN,
    "sm_88": _ORIN,
    "sm_89": Chip(142, 100 * KIB, 99 * KIB, 96 * MIB, 0.7e6, 220e6, 45e6, 0.9e6),  # L40S
    "sm_90": Chip(132, 228 * KIB, 227 * KIB, 50 * MIB, 4e6, 600e6, 40e6, 40e6),  # H200
    "sm_100": _BLACKWELL,  # B200
    "sm_101": _THOR,
    "sm_103": _BLACKWELL,  # B300
    "sm_110": _THOR,
    "sm_120": Chip(170, 100 * KIB, 99 * KIB, 96 * MIB, 1.5e6, 170e6, 55e6, 1e6),  # RTX 5090
    "sm_121": Chip(48, 100 * KIB, 99 * KIB, 24 * MIB, 0.23e6, 50e6, 15e6, 0.3e6),  # GB10
}
"""By the architecture of a target."""


def chip_of(target: str) -> Chip:
    """The chip of a CUDA target, with libraries or without."""
    return CHIPS[target.partition("+")[0]]
