"""Passes that depend on where a module will run."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.passes import ModulePass

from aicf_mlir.ir import registry


@dataclass(frozen=True)
class TargetPass(ModulePass):
    """A pass for one target; VerifyError for one that there is not.

    Options:
      target: "cpu" (the default), or a compute capability such as "sm_90", with "+" and each library that it may use
    """

    target: str = "cpu"

    def __post_init__(self) -> None:
        registry.check_target(self.target)

    @property
    def is_cpu(self) -> bool:
        """True if a launch is a call."""
        return registry.is_cpu(self.target)
