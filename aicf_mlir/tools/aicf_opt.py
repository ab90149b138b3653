"""`aicf-opt`: parse, run passes in the order typed, print. `--a --b=x=1` equals `-p "a,b{x=1}"`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import DiagnosticException

from aicf_mlir.diagnostics import Diagnostic, LocatedError, Locator, Source
from aicf_mlir.dialects.registry import check_target
from aicf_mlir.errors import AicfError, VerifyError
from aicf_mlir.parsing import make_context, parse_source
from aicf_mlir.pipeline import PassSpecError, PassTable, available_passes, run_passes
from aicf_mlir.stages import check_legal
from aicf_mlir.tools.command_line import FAILED, INTERNAL, OK, guarded, internal_error
from aicf_mlir.tools.expected import check_expected, expected_diagnostics
from aicf_mlir.tools.opt_options import BOOLEANS, Step, build_parser, build_steps, list_passes, named_passes
from aicf_mlir.tools.printing import Dumps, Form
from aicf_mlir.tools.source import read_source, split_source, write_output
from aicf_mlir.tools.timing import Timing
from aicf_mlir.verify import verify_module


def build_dumps(options: argparse.Namespace, form: Form, passes: PassTable) -> Dumps:
    """What the options ask to print around passes; raises `PassSpecError` for a pass that is not there."""
    before = named_passes(options.print_ir_before, passes)
    after = named_passes(options.print_ir_after, passes)
    every_change = options.print_ir_after_change and not after
    return Dumps(
        form.text,
        passes if options.print_ir_before_all else before,
        passes if options.print_ir_after_all or every_change else after,
        options.print_ir_after_change,
    )


class Run:
    """One run of the tool: the command line, the passes and the times."""

    def __init__(
        self,
        options: argparse.Namespace,
        steps: Sequence[Step],
        form: Form,
        dumps: Dumps,
        command: Sequence[str],
    ):
        self.options = options
        self.command = command
        self.internal = False
        self.steps = steps
        self.form = form
        self.dumps = dumps
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
                return self.form.text(parsed.module), []
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
        for step in self.steps:
            run_passes(
                context,
                module,
                step.passes,
                verify_each=self.options.verify_each,
                before_each=self.dumps.before_pass,
                after_each=self.after_pass,
            )
            if step.stage is not None:
                check_legal(module, step.stage)

    def after_pass(self, done: ModulePass, module: ModuleOp, seconds: float) -> None:
        """Count the time of a pass and dump its result if asked to."""
        self.timing.add(done.name, seconds)
        self.dumps.after_pass(done, module)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; returns 0, 1 for refused input, 2 for a wrong command line, 70 for a bug."""
    passes = available_passes()
    parser = build_parser(passes)
    command = sys.argv[1:] if arguments is None else arguments
    options = parser.parse([BOOLEANS.get(argument, argument) for argument in command])
    form = Form(options.print_op_generic, options.print_debuginfo, options.elide)

    def tool() -> int:
        if options.list_passes:
            write_output("-", list_passes(passes))
            return OK
        try:
            check_target(options.target)
            steps = build_steps(options.steps or (), options.target, passes)
            dumps = build_dumps(options, form, passes)
        except (PassSpecError, VerifyError) as error:
            parser.error(str(error))
        return Run(options, steps, form, dumps, ["aicf-opt", *command]).run()

    return guarded(tool, "aicf-opt", command, debug=options.debug)


if __name__ == "__main__":
    sys.exit(main())
