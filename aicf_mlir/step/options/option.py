"""An option of a compiled step: its row in the table of options, and the effect that it has on a step.

`Option` defines the user's side: the keyword, its type and default, and the functions that take it. `Effect` defines
the behavior. `table.py` lists the options. A new one is a file with its effect, and its row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Literal, Self

import torch

from aicf_mlir.frontend import Traced
from aicf_mlir.runtime.program import Program
from aicf_mlir.runtime.step_numbers import StepNumber

if TYPE_CHECKING:
    from aicf_mlir.step.compiled_step import CompiledTrainStep
    from aicf_mlir.step.request import Request

Entry = Literal["train", "eval", "loop"]
"""The functions that take options: compile_train_step, compile_eval_step and compile_step."""

EVERYWHERE: tuple[Entry, ...] = ("train", "eval", "loop")
NOT_IN_LOOPS: tuple[Entry, ...] = ("train", "eval")
TRAINING: tuple[Entry, ...] = ("train",)

REQUIRED = Parameter.empty
"""The default of an option that must be given."""


class Effect:
    """The changes that an option makes to a step. Each method is one change that it can make; by default it does
    nothing.

    An effect that is made without arguments is that of a step whose function does not take the option.
    """

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Make the effect of the arguments of a function, by keyword. Raises BindError for an invalid argument of the
        option.
        """
        return cls()

    def check(self, request: Request) -> None:
        """Raise BindError if the option does not fit model, optimizer or shapes. It is called before anything is traced."""

    def added(self, traces: Sequence[Traced], device: torch.device) -> list[Traced]:
        """Return the traces of all shape groups with the tensors of the option among their buffers."""
        return list(traces)

    def check_outputs(self, names: Iterable[str]) -> None:
        """Raise BindError for an output of the loss function with a name that the option uses."""

    def passes(self, device: str) -> Mapping[str, str]:
        """Return the passes that the option requests, with their options; `device` is for example "cpu" or "cuda:0"."""
        return {}

    def explained(self) -> AbstractContextManager[None]:
        """Surround lowering and binding: errors that come from the option name it."""
        return nullcontext()

    def check_program(self, step: str, program: Program) -> None:
        """Raise BindError for a plan that the option does not allow; called before the plan is bound."""

    @property
    def numbers(self) -> Mapping[str, StepNumber]:
        """Return the host numbers that the user may change between steps, by the names of their host scalars."""
        return {}

    def adopt(self, traced: Traced) -> None:
        """Keep the tensors of a step that was built from `traced`."""

    def begin(self, step: CompiledTrainStep) -> None:
        """Act on a step as soon as it is compiled."""

    @property
    def described(self) -> Mapping[str, str | None]:
        """Return the lines of `step.describe()` about the option, by key."""
        return {}


@dataclass(frozen=True)
class Option:
    """One row of the table of options."""

    keyword: str
    type: str
    """The annotation in the signature."""
    default: object
    doc: str
    """The description of the option for a user."""
    effect: type[Effect] | None = None
    """The effect, or None if the request itself reads the argument. Several options may have one effect."""
    taken_by: tuple[Entry, ...] = EVERYWHERE
    reports: tuple[str, ...] = ()
    """The attributes of a compiled step that show a user the option's result."""
    apart: Mapping[Entry, tuple[str, object]] = field(default_factory=dict[Entry, tuple[str, object]])
    """The type and default in a function that differs from the others."""

    @property
    def text(self) -> str:
        """Return the doc on one line."""
        return " ".join(self.doc.split())

    def parameter(self, entry: Entry) -> Parameter:
        """Return the option in the signature of a function."""
        type_, default = self.apart.get(entry, (self.type, self.default))
        return Parameter(self.keyword, Parameter.KEYWORD_ONLY, annotation=type_, default=default)
