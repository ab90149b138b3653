"""`aicf-opt`: parse, run passes in the order typed, print. `--a --b=x=1` equals `-p "a,b{x=1}"`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import StringIO
from time import perf_counter
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.printer import Printer
from xdsl.utils.exceptions import DiagnosticException

from aicf_mlir.diagnostics import Diagnostic, LocatedError, Locator, Source
from aicf_mlir.errors import AicfError
from aicf_mlir.parsing import make_context, parse_source
from aicf_mlir.pipeline import PassSpecError, available_passes, describe_options, parse_passes, run_passes
from aicf_mlir.stages import STAGES, Stage, check_legal, stage_range
from aicf_mlir.tools.command_line import FAILED, OK, ToolParser, VersionAction, guarded, internal_error
from aicf_mlir.tools.expected import check_expected, expected_diagnostics
from aicf_mlir.tools.source import read_source, split_source, write_output
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


@dataclass
class Timing:
    """Seconds by activity, in the order of their first start."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def add(self, name: str, seconds: float) -> None:
        """Count `seconds` for `name`."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def measure(self, name: str, action: Callable[[], Any]) -> Any:
        """The result of `action`, whose time counts for `name`."""
        start = perf_counter()
        try:
            return action()
        finally:
            self.add(name, perf_counter() - start)

    def table(self) -> str:
        """One line for each activity and one for all."""
        total = sum(self.seconds.values())
        rows = [*self.seconds.items(), ("total", total)]
        lines = [f"{spent:10.4f} s {spent / total if total else 0:7.1%}  {name}" for name, spent in rows]
        return "\n".join(["// timing", *lines, ""])


def build_parser() -> ToolParser:
    """The options of aicf-opt."""
    stages = "\n".join(f"  {stage.name:8} {stage.meaning:45} {','.join(stage.passes)}" for stage in STAGES)
    epilog = f"passes (each is a flag; --list-passes describes them):\n  {' '.join(available_passes())}\n\nstages:\n{stages}"
    parser = ToolParser("aicf-opt", passes=available_passes(), description=DESCRIPTION, epilog=epilog)
    add = parser.add_argument
    add(
        "input", nargs="?", default="-", metavar="FILE", help="the input file, - for standard input (default)"
    )
    add(
        "-o",
        dest="output",
        default="-",
        metavar="FILE",
        help="the output file, - for standard output (default)",
    )
    add(
        "-p",
        "--passes",
        dest="steps",
        action="append",
        type=lambda text: ("passes", text),
        metavar="LIST",
        help='passes to run, as "a,b{x=1 y=2}"; may be mixed with pass flags',
    )
    add(
        "--stage",
        dest="steps",
        action="append",
        type=lambda text: ("stage", text),
        metavar="NAME[=target=T]",
        help="run the whole pipeline up to this stage",
    )
    add("--target", default="cpu", metavar="T", help="target of --stage: cpu (default), sm_80, sm_90, …")
    add(
        "--verify-each",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="verify after each pass (default)",
    )
    add(
        "--verify-diagnostics",
        action="store_true",
        help="check messages against // expected-error {{…}} comments; without any, print them and exit 0",
    )
    add("--split-input-file", action="store_true", help="treat the pieces between // ----- lines one by one")
    add("--allow-unregistered-dialect", action="store_true", help="accept ops of unknown dialects")
    add(
        "--print-ir-after-all",
        action="store_true",
        help="print the module after each pass, to standard error",
    )
    add("--print-op-generic", action="store_true", help="print the generic form")
    add("--print-debuginfo", action="store_true", help="print locations")
    add("--timing", action="store_true", help="print a table of times, to standard error")
    add("--list-passes", action="store_true", help="print every pass with its options")
    add("--debug", action="store_true", help="show the Python traceback of an internal error")
    add("--version", action=VersionAction)
    return parser


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
        pass_type = load()
        summary = (pass_type.__doc__ or "").strip().splitlines()
        lines.append(f"--{name}\n    {summary[0] if summary else ''}\n    {describe_options(pass_type)}\n")
    return "".join(lines)


class Optimizer:
    """One run of the tool: the command line, the passes and the times."""

    def __init__(self, options: argparse.Namespace, steps: Sequence[Step]):
        self.options = options
        self.steps = steps
        self.timing = Timing()

    def run(self) -> int:
        """Treat every piece of the input; the output is written if there is one, errors go to standard error."""
        whole = read_source(self.options.input)
        texts: list[str] = []
        reports: list[str] = []
        failed = False
        for piece in split_source(whole) if self.options.split_input_file else [whole]:
            text, found = self.treat(piece)
            if self.options.verify_diagnostics:
                expected = expected_diagnostics(piece)
                wrong = check_expected(expected, found) if expected else []
                if not expected:
                    texts += map(str, found)
                reports += map(str, wrong)
                failed |= bool(wrong)
            else:
                reports += map(str, found)
                failed |= bool(found)
            if text is not None:
                texts.append(text)
        sys.stderr.write("".join(reports))
        if self.options.timing:
            sys.stderr.write(self.timing.table())
        if not failed or self.options.output == "-":
            write_output(self.options.output, "// -----\n".join(texts))
        return FAILED if failed else OK

    def treat(self, source: Source) -> tuple[str | None, list[Diagnostic]]:
        """Parse, verify, transform and print one piece; what stopped it is returned beside."""
        locator = Locator(source, {})
        try:
            context = make_context(allow_unregistered=self.options.allow_unregistered_dialect)
            parsed = self.timing.measure("parse", lambda: parse_source(context, source))
            locator = parsed.locator
            self.timing.measure("verify the input", lambda: verify_module(parsed.module))
            self.transform(context, parsed.module)
            return self.timing.measure("print", lambda: self.text(parsed.module)), []
        except LocatedError as error:
            return None, [error.diagnostic]
        except (DiagnosticException, AicfError) as error:
            return None, [locator.describe(error)]
        except Exception as error:
            if self.options.debug:
                raise
            return None, [internal_error(error, locator.describe(error).place)]

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
        stream = StringIO()
        generic: bool = self.options.print_op_generic
        Printer(stream, print_generic_format=generic, print_debuginfo=self.options.print_debuginfo).print_op(
            module
        )
        return stream.getvalue() + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; returns 0, 1 for refused input, 2 for a wrong command line."""
    parser = build_parser()
    options = parser.parse(sys.argv[1:] if arguments is None else arguments)
    if options.list_passes:
        return guarded(lambda: write_output("-", list_passes()) or OK, "aicf-opt")
    try:
        steps = build_steps(options.steps or (), options.target)
    except PassSpecError as error:
        parser.error(str(error))
    return guarded(Optimizer(options, steps).run, "aicf-opt", debug=options.debug)


if __name__ == "__main__":
    sys.exit(main())
