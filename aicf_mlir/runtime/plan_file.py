"""A plan that a user has edited: it is read once, completed, and bound in place of the step's own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import DiagnosticException

from aicf_mlir.dialects.plan import ProgramOp, find_program
from aicf_mlir.dialects.plan.differences import PlanComparison, listed, same_work
from aicf_mlir.dialects.plan.hazards import order_launches
from aicf_mlir.dialects.plan.kernels import name_kernels
from aicf_mlir.errors import AicfError, BindError
from aicf_mlir.frontend.reads import Read
from aicf_mlir.ir.diagnostics import Diagnostic, LocatedError, Locator
from aicf_mlir.ir.printing import changed_line, to_text
from aicf_mlir.ir.reading import read_text, shown_path
from aicf_mlir.ir.verify import verify_module
from aicf_mlir.passes.plan_memory import plan as plan_memory
from aicf_mlir.runtime.guards import Guard
from aicf_mlir.runtime.host_memory import check_memory, host_memory
from aicf_mlir.runtime.plan_binding import binding_faults
from aicf_mlir.stages import STAGES, Snapshots, check_legal
from aicf_mlir.text.parsing import make_context, parse_source

ADVICE = 'write step.ir("plan") of this model, with these options and shapes, to a file, and edit that'


@dataclass(frozen=True, eq=False)
class PlanFile:
    """A plan that has been read and verified; the file is not read again."""

    module: ModuleOp
    """The plan with kernel ids and addresses, even if the text leaves them out."""
    locator: Locator
    digest: str
    """The SHA-256 of the text, in hexadecimal digits."""
    meaning: str = ""
    """The pure step that the plan was bound for, as text; empty before it is bound."""
    comparison: PlanComparison | None = None
    """The comparison with the step's own plan, once it is bound."""

    @classmethod
    def read(cls, path: Any) -> PlanFile | None:
        """Return the plan in the file at `path`; None for None.

        Raises LocatedError, with file, line and column, for an invalid plan; BindError for an invalid path.
        """
        if path is None:
            return None
        try:
            name = str(Path(path))
        except TypeError:
            kind = type(path).__name__
            raise BindError(f"plan= takes the path of a plan, a str or a PathLike, got {kind}") from None
        if "\n" in name:
            raise BindError(
                "plan= takes the path of a plan, got a text of several lines; write it to a file first"
            )
        source = read_text(partial(Path.open, Path(name), "rb"), shown_path(name))
        parsed = parse_source(make_context(), source)
        try:
            check_legal(parsed.module, STAGES[-1])
            program = find_program(parsed.module)
            has_addresses = bool(program.arenas) or program.peak is not None
            if not has_addresses:
                _order(program)
            verify_module(parsed.module)
            name_kernels(program)
            if not has_addresses:
                plan_memory(program)
            verify_module(parsed.module)
        except (DiagnosticException, AicfError) as error:
            raise LocatedError(parsed.locator.describe(error)) from error
        return cls(parsed.module, parsed.locator, hashlib.sha256(source.text.encode()).hexdigest())

    @property
    def name(self) -> str:
        """The path as it was given."""
        return self.locator.source.name

    @property
    def origin(self) -> str:
        """Path and digest in readable form."""
        return f"{self.name} (sha256 {self.digest[:12]})"

    @property
    def told(self) -> str:
        """Return the source of the plan, its differences from the step's own, and the computations it changes."""
        return f"the plan is that of {self.origin}; {self.comparison}"

    @property
    def changes_meaning(self) -> bool:
        """True if the plan, once it is bound, trains by other formulas than the model's."""
        return self.comparison is not None and bool(self.comparison.results)

    @property
    def guard(self) -> Guard:
        """Return the guard for the plan that a step was compiled for."""
        return Guard("plan", "file", self.origin, Read("plan", "file", self.origin, may_be_host_scalar=False))

    def expect_one_size(self, sizes: int, further: int) -> None:
        """Raise BindError if the step has, or may get, plans of several batch sizes."""
        if further:
            raise BindError(
                f"plan= and further_sizes={further}: a plan is of one batch size; leave one of them out"
            )
        if sizes != 1:
            raise BindError(
                f"plan= is the plan of one batch size, and {sizes} are asked for; compile a step for each"
            )

    def bound_to(self, own: Snapshots, device: torch.device) -> PlanFile:
        """Return the same plan, bound to the step with the stages `own`, whose own plan it replaces.

        Raises BindError, and changes nothing, if it binds other tensors, or if it was bound to another step before.
        Raises PlanError for more memory than there is.
        """
        meaning = to_text(own["step" if "step" in own else "nn"])
        if self.meaning and (line := changed_line(self.meaning, meaning)):
            raise BindError(
                f"{self.name}: the step is another than the one that this plan was given for ({line}), and a plan is not"
                " changed along; compile anew, without plan= or with an edited plan of the step as it is now"
            )
        program = find_program(self.module)
        if faults := binding_faults(find_program(own["plan"]), program):
            texts = [text for _, text in faults]
            message = f"this is no plan of the step: {listed(texts, '; ')}; {ADVICE}"
            raise BindError(str(Diagnostic("error", message, self.locator.place_of(faults[0][0]))).rstrip())
        check_memory(program.peak_bytes or 0, f"{self.name}: the plan", _memory_of(device))
        module = self.module.clone()
        known = same_work(own["plan"], module)
        for launch in find_program(module).launches:
            if (
                launch.symbol in known
            ):  # it still stands for a line of the model; an edited op, for a line of the file
                launch.location = known[launch.symbol].location
        comparison = PlanComparison.of(own["plan"], module)
        own("plan", module)
        return replace(self, meaning=meaning, comparison=comparison)


def _order(program: ProgramOp) -> None:
    """Write `after` again in an unverified plan, if all its slots are there; if not, the verifier reports it."""
    for op in program.body.block.ops:
        op.verify()
    slots, launches = program.slots, program.launches
    named = {slot.root for slot in slots.values()} | {name for launch in launches for name in launch.touched}
    if named <= slots.keys():
        order_launches(launches, slots)


def _memory_of(device: torch.device) -> int:
    if device.type == "cpu":
        return host_memory()
    cuda: Any = torch.cuda
    return int(cuda.get_device_properties(device).total_memory)
