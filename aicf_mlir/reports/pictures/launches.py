"""The description of a launch in both pictures, and the axis of launches in the order of the plan."""

from __future__ import annotations

from aicf_mlir.dialects.plan import LaunchOp
from aicf_mlir.ir.locations import origins

MOST_SOURCES = 3
"""Lines of the user's that a tooltip names; a launch may stand for a whole model."""


def headline(launch: LaunchOp) -> str:
    """`k0 gemm_epilogue`."""
    return f"{launch.symbol} {launch.op.data}"


def sources(launch: LaunchOp) -> list[str]:
    """The lines and layers that it stands for, the main one first."""
    found = [str(location) for location in origins(launch)]
    left_out = len(found) - MOST_SOURCES
    return [*found[:MOST_SOURCES], *([f"and {left_out} more"] if left_out > 0 else [])]
