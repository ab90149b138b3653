"""Draws docs/pictures from examples/train_step.mlir: `python tests/py/tools/pictures.py`."""

from __future__ import annotations

from pathlib import Path

from aicf_mlir.ir.diagnostics import Source
from aicf_mlir.reports.pictures import memory_picture, timeline_picture
from aicf_mlir.text.parsing import make_context, parse_source
from aicf_mlir.tools.runnable import make_planned

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "pictures"
EXAMPLE = "examples/train_step.mlir"
PICTURES = {"memory.svg": memory_picture, "timeline.svg": timeline_picture}


def draw(name: str) -> str:
    """The text of one picture, as `aicf-plot examples/train_step.mlir` prints it."""
    context = make_context()
    module = parse_source(context, Source(EXAMPLE, (ROOT / EXAMPLE).read_text())).module
    return PICTURES[name](make_planned(module, context))


if __name__ == "__main__":
    for name in PICTURES:
        (FOLDER / name).write_text(draw(name))
