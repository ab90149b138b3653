"""The distribution of a step's time: each launch measured, with the bytes and operations of the launch, and the machine's
rates.
"""

from __future__ import annotations

from aicf_mlir.profiling.profile import LaunchProfile, Profile

__all__ = ["LaunchProfile", "Profile"]
