"""Pictures of a plan, as SVG: the places of its memory over time, and the dependencies between launches.

Both are functions of the plan alone: the same plan gives the same bytes. Every mark has a tooltip, so that a picture of hundreds
of launches, in which few names fit, still identifies each.
"""

from aicf_mlir.reports.pictures.memory import memory_picture
from aicf_mlir.reports.pictures.timeline import timeline_picture

__all__ = ["memory_picture", "timeline_picture"]
