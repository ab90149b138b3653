"""`aicf-opt`: parse, run passes in the order typed, print. `--a --b=x=1` equals `-p "a,b{x=1}"`."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import DiagnosticException

from aicf_mlir.errors import AicfError, VerifyError
from aicf_mlir.ir import remarks
from aicf_mlir.ir.diagnostics import Diagnostic, LocatedError, Locator, Source
from aicf_mlir.ir.registry import check_target
from aicf_mlir.ir.remarks import Note
from aicf_mlir.ir.verify import Verifier
from aicf_mlir.passes.pipeline import PassSpecError, PassTable, available_passes, run_passes, unverified
from aicf_mlir.reports.describe import describe
from aicf_mlir.reports.sources import sources
from aicf_mlir.stages import check_legal
from aicf_mlir.text.parsing import make_context, parse_source
from aicf_mlir.tools.command_line import FAILED, INTERNAL, OK, ToolParser, guarded, internal_error
from aicf_mlir.tools.expected import check_expected, expected_diagnostics
from aicf_mlir.tools.opt_options import (
    DESCRIBE,
    SHORTHANDS,
    Step,
    build_parser,
    build_steps,
    list_passes,
    named_passes,
    plugins_of,
)
from aicf_mlir.tools.plugins import PluginError, origin_of, with_outside_passes
from aicf_mlir.tools.printing import Dumps, Form
from aicf_mlir.tools.source import read_source, split_source, write_output
from aicf_mlir.tools.timing import Timing
from aicf_mlir.tuning.obeyed import HeldLocks


def build_dumps(options: argparse.Namespace, form: Form, passes: PassTable) -> Dumps:
    """The prints around passes that the options request; raises `PassSpecError` for an unknown pass."""
    before = named_passes(options.print_ir_before, passes)
    after = named_passes(options.print_ir_after, passes)
    every_change = options.print_ir_after_change and not after
    return Dumps(
        form.text,
        passes if options.print_ir_before_all else before,
        passes if options.print_ir_after_all or every_change else after,
        options.print_ir_after_change,
    )


@dataclass(frozen=True)
class RemarkList:
    """A listener that keeps remarks as messages, each at its place in the input."""

    locator: Locator
    found: list[Diagnostic]

    def __call__(self, op: Operation, message: str, notes: tuple[Note, ...]) -> None:
        """Keep one remark."""
        explained = tuple(
            Diagnostic("note", text, replace(self.locator.place_of(other), text=None))
            for other, text in notes
        )
        self.found.append(
            Diagnostic("remark", f"'{op.name}' op {message}", self.locator.place_of(op), explained)
        )


@dataclass
class Run:
    """One run of the tool: the command line, the passes and the times."""

    command: Sequence[str]
    options: argparse.Namespace
    passes: PassTable
    steps: Sequence[Step]
    held: HeldLocks
    form: Form
    dumps: Dumps
    timing: Timing = field(default_factory=Timing)
    running: ModulePass | None = None
    internal: bool = False

    def run(self) -> int:
        """Treat every piece of the input. Messages go to standard error; after an error no output file is written."""
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
                failed |= any(one.severity == "error" for one in found)
            if text is not None:
                texts.append(text)
        if self.options.timing:
            sys.stderr.write(self.timing.table())
        if not failed or self.options.output == "-":
            write_output(self.options.output, "// -----\n".join(texts))
        return INTERNAL if self.internal else FAILED if failed else OK

    def treat(self, source: Source) -> tuple[str | None, list[Diagnostic]]:
        """Parse, verify, transform and print one piece; return the text and the remarks or errors."""
        locator = Locator(source, {})
        diagnostics: list[Diagnostic] = []
        try:
            context = make_context(allow_unregistered=self.options.allow_unregistered_dialect)
            with self.timing.measure("parse"):
                parsed = parse_source(context, source)
            locator = parsed.locator
            verifier = Verifier(whole=True)  # of passes that a developer may be working on
            with self.timing.measure("verify the input"):
                verifier(parsed.module)
            with (
                remarks.heard_by(RemarkList(locator, diagnostics)) if self.options.remarks else nullcontext()
            ):
                self.transform(context, parsed.module, verifier)
            with self.timing.measure("print"):
                return self.result(parsed.module), diagnostics
        except LocatedError as error:
            return None, [*diagnostics, error.diagnostic]
        except (DiagnosticException, AicfError) as error:
            return None, [*diagnostics, locator.describe(error)]
        except Exception as error:  # noqa: BLE001 - a bug of ours: reported with its reproducer, exit code 70
            self.internal = True
            place, debug = locator.describe(error).place, self.options.debug
            owner = origin_of(self.passes[self.running.name]) if self.running is not None else "AICF"
            bug = internal_error(error, place, self.command, source, debug=debug, owner=owner)
            return None, [*diagnostics, bug]

    def result(self, module: ModuleOp) -> str:
        """The final output for `module`: its text, the description of its launches, or the code of its kernels."""
        if self.options.emit is not None:
            return f"{sources(module, self.options.emit)}\n"
        if self.options.describe is None:
            return self.form.text(module)
        return f"{DESCRIBE[self.options.describe](describe(module))}\n"

    def transform(self, context: Context, module: ModuleOp, verifier: Verifier) -> None:
        """Run all steps on `module`, and `verifier` after each pass if requested."""

        def verify(module: ModuleOp) -> None:
            with self.timing.measure("verify after passes"):
                verifier(module)

        for step in self.steps:
            run_passes(
                context,
                module,
                step.passes,
                verifier=verify if self.options.verify_each else unverified,
                before_each=self.before_pass,
                after_each=self.after_pass,
            )
            if step.stage is not None:
                check_legal(module, step.stage)
        self.held.check(module)

    def before_pass(self, coming: ModulePass, module: ModuleOp) -> None:
        """Dump the module if requested."""
        self.dumps.before_pass(coming, module)
        self.running = coming

    def after_pass(self, done: ModulePass, module: ModuleOp, seconds: float) -> None:
        """Count the time of a pass and dump its result if requested."""
        self.running = None
        self.timing.add(done.name, seconds)
        self.dumps.after_pass(done, module)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; returns 0, 1 for refused input, 2 for a wrong command line, 70 for a bug."""
    command = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in command

    def tool() -> int:
        try:
            passes = with_outside_passes(available_passes(), plugins_of(command))
            parser = build_parser(passes)
        except PluginError as error:
            if debug:
                traceback.print_exception(error)
            ToolParser("aicf-opt").error(str(error))
        options = parser.parse([SHORTHANDS.get(argument, argument) for argument in command])
        try:
            if options.list_passes:
                write_output("-", list_passes(passes))
                return OK
            check_target(options.target)
            steps, held = build_steps(
                options.steps or (),
                options.target,
                passes,
                options.lock,
                options.mesh,
                options.zero,
                options.rank,
            )
            form = Form(options.print_op_generic, options.print_debuginfo, options.elide)
            dumps = build_dumps(options, form, passes)
        except (PassSpecError, PluginError, VerifyError) as error:
            parser.error(str(error))
        return Run(["aicf-opt", *command], options, passes, steps, held, form, dumps).run()

    return guarded(tool, "aicf-opt", command, debug=debug)


if __name__ == "__main__":
    sys.exit(main())
