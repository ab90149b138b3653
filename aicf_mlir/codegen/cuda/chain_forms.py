"""The schedules of a chain on a GPU: tiles of rows that go through all links in one launch, or a launch for each part."""

from __future__ import annotations

from aicf_mlir.codegen.cuda.back_to_back_schedule import plan_of
from aicf_mlir.errors import SelectionError
from aicf_mlir.kernels.back_to_back import BackToBackKernel
from aicf_mlir.kernels.kernel import Kernel
from aicf_mlir.kernels.schedule_text import ScheduleText

TILES, PARTS = "tiles", "parts"


def text_of(kernel: Kernel) -> str:
    """The schedule that a chain has, its own or else tiles where the chip has code for them; SelectionError for none such."""
    assert isinstance(kernel, BackToBackKernel)
    why = plan_of(kernel)
    if not kernel.schedule:
        return PARTS if isinstance(why, str) else TILES
    found = ScheduleText.parse(kernel.schedule, {TILES: (), PARTS: ()})
    if found.form == TILES and isinstance(why, str):
        raise SelectionError(f"schedule {kernel.schedule!r}: {why}")
    return found.form


def candidates(kernel: Kernel) -> list[str]:
    """Both, tiles first, or parts alone."""
    return [TILES, PARTS] if text_of(kernel) == TILES else [PARTS]


def is_in_parts(kernel: Kernel) -> bool:
    """True if each part of the chain has a launch."""
    return text_of(kernel) == PARTS
