"""`aicf-plot`: a picture of a plan, as SVG: its memory, or its launches."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.errors import VerifyError
from aicf_mlir.ir.registry import check_target
from aicf_mlir.pictures import memory_picture, timeline_picture
from aicf_mlir.profiling.times import times_of
from aicf_mlir.tools.command_line import OK, ToolParser, VersionAction, guarded
from aicf_mlir.tools.one_file import OneFile
from aicf_mlir.tools.planned import make_planned
from aicf_mlir.tools.source import read_source, write_output

DESCRIPTION = """\
Draw the plan of a step as SVG, with a tooltip for each slot and each launch.

  aicf-plot examples/train_step.mlir -o memory.svg                which slots keep which bytes, and when
  aicf-plot --timeline examples/train_step.mlir -o timeline.svg   which launches wait for which
  aicf-plot --timeline --times times.json step.plan -o timeline.svg   as aicf-run step.plan --time-json=times.json measured
  aicf-opt --stage plan --target sm_90 examples/train_step.mlir | aicf-plot - -o memory.svg

A file above plan level is lowered first, as aicf-opt --stage plan does.
"""


def build_parser() -> ToolParser:
    """The options of aicf-plot."""
    parser = ToolParser("aicf-plot", description=DESCRIPTION)
    add = parser.add_argument
    add("input", metavar="FILE", help="input, - for standard input")
    add("-o", dest="output", default="-", metavar="FILE.svg", help="output (default: standard output)")
    add("--timeline", action="store_true", help="draw the launches and what they wait for, not the memory")
    add(
        "--times",
        metavar="FILE.json",
        help="with --timeline: what aicf-run --time-json measured of this plan",
    )
    add("--target", metavar="T", help="target of a file above plan level: cpu (default), sm_80, sm_90, …")
    add("--debug", action="store_true", help="show the Python traceback of an internal error")
    add("--version", action=VersionAction)
    return parser


class Run(OneFile):
    """One run of the tool."""

    def use(self, context: Context, module: ModuleOp) -> int:
        """Plan and draw; after an error no file is written."""
        picture = self.drawn(make_planned(module, context, self.options.target))
        write_output(self.options.output, picture)
        return OK

    def drawn(self, program: ProgramOp) -> str:
        """The picture that was asked for."""
        if not self.options.timeline:
            return memory_picture(program)
        times = self.options.times
        return timeline_picture(program, None if times is None else times_of(read_source(times), program))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; returns 0, 1 for refused input, 2 for a wrong command line, 70 for a bug."""
    parser = build_parser()
    options = parser.parse(sys.argv[1:] if arguments is None else arguments)
    if options.times is not None and not options.timeline:
        parser.error("--times is for --timeline: memory does not take longer")
    try:
        check_target(options.target or "cpu")
    except VerifyError as error:
        parser.error(str(error))
    tool = Run(options)
    return guarded(tool.run, "aicf-plot", arguments, debug=options.debug, source=lambda: tool.source)


if __name__ == "__main__":
    sys.exit(main())
