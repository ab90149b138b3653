"""Where the time of a step goes: each launch measured, beside what it moves and computes, and what the machine can do."""

from __future__ import annotations

from aicf_mlir.profiling.profile import LaunchProfile, Profile

__all__ = ["LaunchProfile", "Profile"]
