"""`aicf-tune`: the fastest kernel of each op of a plan on this machine, as a lock."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects.plan.kernels import generated_kernels, use_of
from aicf_mlir.errors import VerifyError
from aicf_mlir.ir.registry import check_target, schemas
from aicf_mlir.tools.command_line import OK, ToolParser, VersionAction, guarded
from aicf_mlir.tools.one_file import OneFile
from aicf_mlir.tools.plan_step import check_device
from aicf_mlir.tools.planned import make_planned
from aicf_mlir.tools.source import write_output
from aicf_mlir.tuning import tuned

DESCRIPTION = """\
Measure on this machine which kernel runs each op of a step fastest, and with which of its choices; print them as a lock.

  aicf-tune examples/train_step.mlir -o aicf.lock

compile_train_step(lock="aicf.lock") obeys it, and so does the pass select-kernels with its option lock="aicf.lock". A file above
plan level is lowered first, as aicf-opt --stage plan does; of a plan its ops are measured, whatever kernels it names.
"""


def build_parser() -> ToolParser:
    """The options of aicf-tune."""
    parser = ToolParser("aicf-tune", description=DESCRIPTION)
    add = parser.add_argument
    add("input", metavar="FILE", help="input, - for standard input")
    add("-o", dest="output", default="-", metavar="FILE.lock", help="output (default: standard output)")
    add("--target", metavar="T", help="target of a file above plan level: cpu (default), sm_80, sm_90, …")
    add("--debug", action="store_true", help="show the Python traceback of an internal error")
    add("--version", action=VersionAction)
    return parser


class Run(OneFile):
    """One run of the tool."""

    def use(self, context: Context, module: ModuleOp) -> int:
        """Plan and measure; after an error no file is written."""
        program = make_planned(module, context, self.options.target)
        device = "cpu" if program.target.data == "cpu" else "cuda:0"
        check_device(program, device)
        slots, known = program.slots, schemas()
        prebuilt = [launch for launch in program.launches if not known[launch.op.data].generated]
        lock = tuned((use_of(launch, slots) for launch in prebuilt), generated_kernels(program), device)
        write_output(self.options.output, lock.text)
        return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; returns 0, 1 for refused input, 2 for a wrong command line, 70 for a bug."""
    parser = build_parser()
    options = parser.parse(sys.argv[1:] if arguments is None else arguments)
    try:
        check_target(options.target or "cpu")
    except VerifyError as error:
        parser.error(str(error))
    tool = Run(options)
    return guarded(tool.run, "aicf-tune", arguments, debug=options.debug, source=lambda: tool.source)


if __name__ == "__main__":
    sys.exit(main())
