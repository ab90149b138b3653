"""`aicf-tune`: the fastest kernel of each op of a plan on this machine, as a lock."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.dialects.plan.kernels import generated_uses
from aicf_mlir.errors import PlanError
from aicf_mlir.ir.registry import is_cpu
from aicf_mlir.tools.command_line import OK, ToolParser
from aicf_mlir.tools.one_file import OneFile, OnePlan
from aicf_mlir.tools.plan_step import check_device
from aicf_mlir.tools.runnable import make_planned, unfinished_stage
from aicf_mlir.tuning.measure import tuned
from aicf_mlir.tuning.obeyed import prebuilt_uses

DESCRIPTION = """\
Measure on this machine which kernel runs each op of a step fastest, and with which of its choices; print them as a lock.

  aicf-tune examples/train_step.mlir -o aicf.lock
  aicf-tune --schedules step.mlir -o aicf.lock           and how the loops of generated kernels are divided
  aicf-tune batch_64.mlir batch_7.mlir -o aicf.lock      one lock for a step of two batch sizes

compile_train_step(lock="aicf.lock") obeys it, and so does aicf-opt --stage plan --lock aicf.lock. A file above plan level is
lowered first, as aicf-opt --stage plan does; of a plan its ops are measured, whatever kernels it names.
"""


class Run(OnePlan):
    """One run of the tool."""

    name, description, output = "aicf-tune", DESCRIPTION, "FILE.lock"

    @classmethod
    def add_options(cls, parser: ToolParser) -> None:
        """Add the option for plans of further sizes."""
        parser.add_argument(
            "--schedules",
            action="store_true",
            help="measure the schedules of generated kernels too: minutes, not seconds",
        )
        parser.add_argument(
            "further", nargs="*", metavar="FILE", help="plans of further batch sizes: one lock for all"
        )

    def text(self, program: ProgramOp) -> str:
        """The lock, measured on the device of the plan's target."""
        device = "cpu" if is_cpu(program.target.data) else "cuda:0"
        check_device(program, device)
        programs = [program, *(Further.read(path, program.target.data) for path in self.options.further)]
        uses = [use for each in programs for use in prebuilt_uses(each).values()]
        generated = {id_: found for each in programs for id_, found in generated_uses(each).items()}
        return tuned(uses, generated, device, self.options.schedules).text


class Further(OneFile):
    """One more plan, for the target of the first."""

    @classmethod
    def read(cls, path: str, target: str) -> ProgramOp:
        """The plan in the file at `path`; LocatedError if it is none."""
        file = cls(argparse.Namespace(input=path, target=target))
        file.run()
        return file.program

    def use(self, context: Context, module: ModuleOp) -> int:
        """Plan, and keep the plan."""
        first = self.options.target
        self.program = make_planned(module, context, None if unfinished_stage(module) is None else first)
        if (own := self.program.target.data) != first:
            message = f"the plan is for target {own}, the first one for {first}: a lock is for one target"
            self.program.emit_error(message, PlanError(message))
        return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit code."""
    return Run.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
