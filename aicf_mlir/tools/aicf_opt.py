"""`aicf-opt`: parse, run passes in the order typed, print. `--a --b=x=1` equals `-p "a,b{x=1}"`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import DiagnosticException

from aicf_mlir.diagnostics import Diagnostic, LocatedError, Locator, Source
from aicf_mlir.dialects.registry import check_target
from aicf_mlir.errors import AicfError, VerifyError
from aicf_mlir.parsing import make_context, parse_source
from aicf_mlir.pipeline import (
    PassSpecError,
    available_passes,
    describe_options,
    describe_pass,
    parse_passes,
    run_passes,
)
from aicf_mlir.printing import to_text
from aicf_mlir.stages import STAGES, Stage, check_legal, stage_range
from aicf_mlir.tools.command_line import (
    FAILED,
    INTERNAL,
    OK,
    ToolParser,
    VersionAction,
    guarded,
    internal_error,
)
from aicf_mlir.tools.expected import check_expected, expected_diagnostics
from aicf_mlir.tools.source import read_source, split_source, write_output
from aicf_mlir.tools.timing import Timing
from aicf_mlir.verify import verify_module

DESCRIPTION = """\
Read a file of AICF dialects, run passes on it in the order typed, and print the result.

  aicf-opt --lower --fuse examples/mlp.mlir
  aicf-opt --stage plan --target sm_90 examples/train_step.mlir
  aicf-opt -p "lower,fuse,select-kernels{target=sm_90}" -o out.mlir model.mlir
"""


@dataclass(frozen=True)
class Step:
    """Passes to run, and the stage that they complete, if any."""

    passes: tuple[ModulePass, ...]
    stage: Stage | None = None


SWITCHES = {
    "--verify-diagnostics": "check messages against // expected-error {{…}}; without, print them and exit 0",
    "--split-input-file": "treat the pieces between // ----- lines one by one",
    "--allow-unregistered-dialect": "accept ops of unknown dialects",
    "--print-ir-after-all": "print the module after each pass, to standard error",
    "--print-op-generic": "print the generic form",
    "--print-debuginfo": "print locations",
    "--timing": "print a table of times, to standard error",
    "--list-passes": "print every pass with its options",
    "--debug": "show the Python traceback of an internal error",
}


def build_parser() -> ToolParser:
    """The options of aicf-opt."""
    passes = available_passes()
    stages = "\n".join(f"  {stage.name:8} {stage.meaning:45} {','.join(stage.passes)}" for stage in STAGES)
    epilog = f"passes, each a flag (--list-passes describes them):\n  {' '.join(passes)}\n\nstages:\n{stages}"
    parser = ToolParser("aicf-opt", passes=passes, description=DESCRIPTION, epilog=epilog)
    add = parser.add_argument
    add("input", nargs="?", default="-", metavar="FILE", help="input, - for standard input (default)")
    add("-o", dest="output", default="-", metavar="FILE", help="output, - for standard output (default)")
    steps = add("-p", "--passes", dest="steps", action="append", metavar="LIST")
    steps.type, steps.help = (
        _passes,
        'passes to run, as "a,b{x=1 y=2}"; pass flags and -p run in the order typed',
    )
    steps = add("--stage", dest="steps", action="append", metavar="NAME[=target=T]")
    steps.type, steps.help = _stage, "run the whole pipeline up to this stage"
    add("--target", default="cpu", metavar="T", help="target of --stage: cpu (default), sm_80, sm_90, …")
    verify = add("--verify-each", action=argparse.BooleanOptionalAction, default=True)
    verify.help = "verify after each pass (default)"
    for switch, meaning in SWITCHES.items():
        add(switch, action="store_true", help=meaning)
    add("--version", action=VersionAction)
    return parser


def _passes(text: str) -> tuple[str, str]:
    return "passes", text


def _stage(text: str) -> tuple[str, str]:
    return "stage", text


def build_steps(requests: Sequence[tuple[str, str]], target: str) -> list[Step]:
    """The passes and stages that the command line asks for, in order."""
    steps: list[Step] = []
    for kind, text in requests:
        if kind == "passes":
            steps.append(Step(parse_passes(text)))
            continue
        name, _, option = text.partition("=")
        key, _, value = option.partition("=")
        if option and (key != "target" or not value):
            raise PassSpecError(f"stage '{name}' takes one option, target=…, not '{option}'")
        try:
            rows = stage_range(name)
        except ValueError as error:
            raise PassSpecError(str(error)) from None
        steps += [Step(parse_passes(row.pass_list(value or target)), row) for row in rows]
    return steps


def list_passes() -> str:
    """Every pass: name, first line of its description, options."""
    lines: list[str] = []
    for name, load in available_passes().items():
        lines.append(f"--{name}\n    {describe_pass(name)}\n    {describe_options(load())}\n")
    return "".join(lines)


class Run:
    """One run of the tool: the command line, the passes and the times."""

    def __init__(self, options: argparse.Namespace, steps: Sequence[Step], command: Sequence[str]):
        self.options = options
        self.command = command
        self.internal = False
        self.steps = steps
        self.timing = Timing()

    def run(self) -> int:
        """Treat every piece of the input. Messages go to standard error; after one no output file is written."""
        whole = read_source(self.options.input)
        announced = self.options.verify_diagnostics and bool(expected_diagnostics(whole))
        texts: list[str] = []
        failed = False
        for piece in split_source(whole) if self.options.split_input_file else [whole]:
            text, found = self.treat(piece)
            if announced:
                found = check_expected(expected_diagnostics(piece), found)
            if self.options.verify_diagnostics and not announced:
                texts += map(str, found)
            else:
                sys.stderr.write("".join(map(str, found)))
                failed |= bool(found)
            if text is not None:
                texts.append(text)
        if self.options.timing:
            sys.stderr.write(self.timing.table())
        if not failed or self.options.output == "-":
            write_output(self.options.output, "// -----\n".join(texts))
        return INTERNAL if self.internal else FAILED if failed else OK

    def treat(self, source: Source) -> tuple[str | None, list[Diagnostic]]:
        """Parse, verify, transform and print one piece; what stopped it is returned beside."""
        locator = Locator(source, {})
        try:
            context = make_context(allow_unregistered=self.options.allow_unregistered_dialect)
            with self.timing.measure("parse"):
                parsed = parse_source(context, source)
            locator = parsed.locator
            with self.timing.measure("verify the input"):
                verify_module(parsed.module)
            self.transform(context, parsed.module)
            with self.timing.measure("print"):
                return self.text(parsed.module), []
        except LocatedError as error:
            return None, [error.diagnostic]
        except (DiagnosticException, AicfError) as error:
            return None, [locator.describe(error)]
        except Exception as error:  # noqa: BLE001 - a bug of ours: reported with its reproducer, exit code 70
            self.internal = True
            place, debug = locator.describe(error).place, self.options.debug
            return None, [internal_error(error, place, self.command, source, debug=debug)]

    def transform(self, context: Context, module: ModuleOp) -> None:
        """Run all steps on `module`."""
        verify_each: bool = self.options.verify_each
        for step in self.steps:
            run_passes(context, module, step.passes, verify_each=verify_each, after_each=self.after_pass)
            if step.stage is not None:
                check_legal(module, step.stage)

    def after_pass(self, done: ModulePass, module: ModuleOp, seconds: float) -> None:
        """Count the time of a pass and dump its result if asked to."""
        self.timing.add(done.name, seconds)
        if self.options.print_ir_after_all:
            sys.stderr.write(f"// -----// IR dump after {done.name} //----- //\n{self.text(module)}\n")

    def text(self, module: ModuleOp) -> str:
        """The module as the command line wants it printed."""
        generic, locations = self.options.print_op_generic, self.options.print_debuginfo
        return to_text(module, generic=generic, locations=locations) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; returns 0, 1 for refused input, 2 for a wrong command line, 70 for a bug."""
    parser = build_parser()
    command = sys.argv[1:] if arguments is None else arguments
    options = parser.parse(command)

    def tool() -> int:
        if options.list_passes:
            write_output("-", list_passes())
            return OK
        try:
            check_target(options.target)
            steps = build_steps(options.steps or (), options.target)
        except (PassSpecError, VerifyError) as error:
            parser.error(str(error))
        return Run(options, steps, ["aicf-opt", *command]).run()

    return guarded(tool, "aicf-opt", command, debug=options.debug)


if __name__ == "__main__":
    sys.exit(main())
