"""`aicf-plot`: a picture of a plan, as SVG: its memory, or its launches."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.profiling.times import times_of
from aicf_mlir.reports.pictures import memory_picture, timeline_picture
from aicf_mlir.tools.command_line import ToolParser
from aicf_mlir.tools.one_file import OnePlan
from aicf_mlir.tools.source import read_source

DESCRIPTION = """\
Draw the plan of a step as SVG, with a tooltip for each slot and each launch.

  aicf-plot examples/train_step.mlir -o memory.svg                which slots keep which bytes, and when
  aicf-plot --timeline examples/train_step.mlir -o timeline.svg   which launches wait for which
  aicf-plot --timeline --times times.json step.plan -o timeline.svg   as aicf-run step.plan --time-json=times.json measured
  aicf-opt --stage plan --target sm_90 examples/train_step.mlir | aicf-plot - -o memory.svg

A file above plan level is lowered first, as aicf-opt --stage plan does.
"""


class Run(OnePlan):
    """One run of the tool."""

    name, description, output = "aicf-plot", DESCRIPTION, "FILE.svg"

    @classmethod
    def add_options(cls, parser: ToolParser) -> None:
        """Add the options for the drawing."""
        add = parser.add_argument
        add(
            "--timeline", action="store_true", help="draw the launches and what they wait for, not the memory"
        )
        add(
            "--times",
            metavar="FILE.json",
            help="with --timeline: what aicf-run --time-json measured of this plan",
        )

    @classmethod
    def check_options(cls, parser: ToolParser, options: argparse.Namespace) -> None:
        """Check that times are given only for a timeline."""
        if options.times is not None and not options.timeline:
            parser.error("--times is for --timeline: memory does not take longer")

    def text(self, program: ProgramOp) -> str:
        """The requested picture."""
        if not self.options.timeline:
            return memory_picture(program)
        times = self.options.times
        return timeline_picture(program, None if times is None else times_of(read_source(times), program))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit code."""
    return Run.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
