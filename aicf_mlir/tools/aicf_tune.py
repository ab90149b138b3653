"""`aicf-tune`: the fastest kernel of each op of a plan on this machine, as a lock."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.dialects.plan.kernels import generated_kernels, use_of
from aicf_mlir.ir.registry import schemas
from aicf_mlir.tools.one_plan import OnePlan
from aicf_mlir.tools.plan_step import check_device
from aicf_mlir.tuning import tuned

DESCRIPTION = """\
Measure on this machine which kernel runs each op of a step fastest, and with which of its choices; print them as a lock.

  aicf-tune examples/train_step.mlir -o aicf.lock

compile_train_step(lock="aicf.lock") obeys it, and so does the pass select-kernels with its option lock="aicf.lock". A file above
plan level is lowered first, as aicf-opt --stage plan does; of a plan its ops are measured, whatever kernels it names.
"""


class Run(OnePlan):
    """One run of the tool."""

    name, description, output = "aicf-tune", DESCRIPTION, "FILE.lock"

    def text(self, program: ProgramOp) -> str:
        """The lock, measured on the device of the plan's target."""
        device = "cpu" if program.target.data == "cpu" else "cuda:0"
        check_device(program, device)
        slots, known = program.slots, schemas()
        prebuilt = [launch for launch in program.launches if not known[launch.op.data].generated]
        return tuned((use_of(launch, slots) for launch in prebuilt), generated_kernels(program), device).text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit code."""
    return Run.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
