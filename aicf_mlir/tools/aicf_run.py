"""`aicf-run`: execute a file at any level; a plan by the runtime, all others by the reference interpreter."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.interpreters.arithmetic import Arithmetic
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.ir.signature import Key
from aicf_mlir.profiling import Profile
from aicf_mlir.stages import next_stage, run_stages
from aicf_mlir.tools.command_line import FAILED, OK, ToolParser, VersionAction, guarded
from aicf_mlir.tools.compare import Reference, compare
from aicf_mlir.tools.function_step import FunctionStep
from aicf_mlir.tools.one_file import OneFile
from aicf_mlir.tools.plan_step import PlanStep, device_of, target_of
from aicf_mlir.tools.runnable import check_runnable, without_private
from aicf_mlir.tools.source import expect_output, write_output
from aicf_mlir.tools.tensors import load_values, random_value, save_values, summary

DESCRIPTION = """\
Execute a file at any level and print what comes out.

  aicf-run examples/mlp.mlir                        by the reference interpreter
  aicf-run examples/mlp.mlir --device cpu           lowered to a plan, by the runtime
  aicf-run examples/train_step.mlir --compare=interp --steps 3
  aicf-opt --stage plan examples/train_step.mlir | aicf-run - --trace
  aicf-run examples/train_step.mlir --time          the time of each launch

Arguments come from --inputs by name; the others are random, by --seed and name: the same at every level.
"""

RUNS = 20
"""The default number of runs of `--time`."""


def build_parser() -> ToolParser:
    """The options of aicf-run."""
    parser = ToolParser("aicf-run", description=DESCRIPTION)
    add = parser.add_argument
    add("input", metavar="FILE", help="input, - for standard input")
    add("--inputs", metavar="FILE.npz", help="values of arguments by name")
    add("--seed", type=int, default=0, help="seed of the random values (default 0)")
    add(
        "--device",
        choices=("cpu", "cuda"),
        help="run on this device; a file above plan level is lowered for it",
    )
    add("--compare", choices=("interp",), help="also interpret the file, and compare every result")
    add("--tolerance", type=float, help="largest difference in units of a tensor's largest magnitude")
    add(
        "--steps",
        type=int,
        default=1,
        help="run this many steps, each on the updates of the last (default 1)",
    )
    add("--replay", action="store_true", help="capture the step and replay it, instead of running it eagerly")
    add(
        "--print",
        action="store_true",
        help="print a table of the results (default unless -o, --compare or --trace)",
    )
    add("--trace", action="store_true", help="print the kernel ids of one step in the order they ran")
    add("--time", type=int, metavar="N", help=f"print the time of each launch, of N runs (--time: {RUNS})")
    add("--time-json", metavar="FILE", help="time the launches, and write the times as JSON")
    add(
        "--time-trace",
        metavar="FILE",
        help="time the launches, and write a trace for Perfetto, chrome://tracing",
    )
    add("-o", dest="output", metavar="FILE.npz", help="write the results")
    add("--debug", action="store_true", help="show the Python traceback of an internal error")
    add("--version", action=VersionAction)
    return parser


class Run(OneFile):
    """One run of the tool."""

    def use(self, context: Context, module: ModuleOp) -> int:
        """Run `module` by the interpreter, or on a device, or both to compare; and report."""
        check_runnable(module)
        expect_output(self.options.output, self.options.time_json, self.options.time_trace)
        first = next_stage(module)
        planned = first in (None, "plan")
        device = self.device(module, planned)
        steps: int = self.options.steps
        if device is None:
            step = FunctionStep(module)
            return self.report(step.run(self.values(step), steps), step.names)
        compared: bool = self.options.compare is not None
        reference = self.reference(FunctionStep(module.clone())) if compared and not planned else None
        if first is not None:
            without_private(module)
            run_stages(module, context, target=target_of(device), first=first)
        plan = PlanStep(module, device)
        values = self.values(plan)
        results = plan.run(values, steps, replay=self.options.replay)
        if self.options.trace:
            write_output("-", "".join(f"{line}\n" for line in plan.trace()))
        if compared and reference is None:
            reference = self.reference(plan)
        if reference is not None:  # a tensor that no launch updates keeps its value
            unchanged = [key for key in reference.rounded if key not in results and key in values]
            results |= {key: values[key] for key in unchanged}
        code = self.report(results, plan.names, reference)
        if self.options.time is not None:
            self.time(plan.profile(values, self.options.time))
        return code

    def time(self, profile: Profile) -> None:
        """Print and write the times of the launches."""
        if not self.pipes_times:
            write_output("-", f"{profile}\n")
        if self.options.time_json:
            write_output(self.options.time_json, f"{profile.to_json()}\n")
        if self.options.time_trace:
            write_output(self.options.time_trace, f"{profile.to_trace()}\n")

    @property
    def pipes_times(self) -> bool:
        """True if standard output is for the program that reads the times, and not for tables."""
        return "-" in (self.options.time_json, self.options.time_trace)

    def device(self, module: ModuleOp, planned: bool) -> str | None:
        """The device to run on: the wanted one, that of the plan, the CPU for work that a device does; else none."""
        if self.options.device is not None:
            return self.options.device
        if planned:
            return device_of(module)
        options = self.options
        asked = options.compare or options.trace or options.replay or options.time is not None
        return "cpu" if asked else None

    def reference(self, step: FunctionStep | PlanStep) -> Reference:
        """The interpreter's results for `step`."""
        values, steps = self.values(step), self.options.steps

        def interpret(arithmetic: Arithmetic) -> dict[Key, Array]:
            if isinstance(step, FunctionStep):
                return step.run(values, steps, arithmetic)
            return step.interpret(values, steps, arithmetic)

        return Reference.of(interpret)

    def values(self, step: FunctionStep | PlanStep) -> dict[Key, Array]:
        """The value of every argument: from the file, else random."""
        names = step.names
        given = load_values(self.options.inputs, step.arguments, names) if self.options.inputs else {}
        return {
            tensor.key: given[tensor.key]
            if tensor.key in given
            else random_value(tensor, self.options.seed, names[tensor.key])
            for tensor in step.arguments
        }

    def report(
        self, results: Mapping[Key, Array], names: Mapping[Key, str], reference: Reference | None = None
    ) -> int:
        """Print, write and compare the results."""
        options = self.options
        named = {names[key]: value for key, value in results.items()}
        if options.output:
            save_values(options.output, named)
        told = options.output or options.trace or reference is not None or self.pipes_times
        if options.print or not told:
            write_output("-", summary(named))
        if reference is None:
            return OK
        text, agreed = compare(results, reference, names, options.tolerance)
        write_output("-", text)
        return OK if agreed else FAILED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; returns 0, 1 for refused input or a result that differs, 2 for a wrong command line, 70 for a bug."""
    parser = build_parser()
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse([f"--time={RUNS}" if each == "--time" else each for each in given])
    if options.time is None and (options.time_json or options.time_trace):
        options.time = RUNS
    if options.time is not None and options.time < 1:
        parser.error(f"--time must be at least 1, got {options.time}")
    if options.time_json == options.time_trace == "-":
        parser.error(
            "--time-json=- and --time-trace=- both write to standard output: name a file for one of them"
        )
    if options.steps < 1:
        parser.error(f"--steps must be at least 1, got {options.steps}")
    if options.seed < 0:
        parser.error(f"--seed must not be negative, got {options.seed}")
    tool = Run(options)
    with np.errstate(all="ignore"):
        return guarded(tool.run, "aicf-run", arguments, debug=options.debug, source=lambda: tool.source)


if __name__ == "__main__":
    sys.exit(main())
