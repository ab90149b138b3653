"""The code of the generated kernels of a plan, as text: LLVM IR for the CPU, CUDA C++ for a GPU."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.codegen.schedule import generate
from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.dialects.plan.kernels import generated_kernels
from aicf_mlir.errors import BindError, PlanError

LANGUAGES = {"llvm": "cpu", "cuda": "sm_"}
"""The beginning of the names of the targets whose kernels are written in each language."""


def source_of(module: ModuleOp, kernel_id: str) -> str:
    """The text of one generated kernel of the plans in `module`; BindError if they have none of this id."""
    known = {
        id_: kernel for program in _programs(module) for id_, kernel in generated_kernels(program).items()
    }
    if kernel_id not in known:
        there = ", ".join(known) or "none"
        raise BindError(f"{kernel_id!r} is no generated kernel of this plan; there are {there}")
    return generate(known[kernel_id]).source


def sources(module: ModuleOp, language: str) -> str:
    """The texts of all generated kernels of the plans in `module`, in the order of their first launches.

    PlanError if there is no plan, or one for a target whose kernels are not written in `language`.
    """
    programs = _programs(module)
    if not programs:
        raise PlanError(
            f"there is no plan whose kernels could be written as {language}; run bufferize, or --stage plan"
        )
    texts: dict[str, str] = {}
    for program in programs:
        if not (target := program.target.data).startswith(LANGUAGES[language]):
            raise PlanError(
                f"kernels for {target} are not written as {language}; choose the target with --target"
            )
        for id_, kernel in generated_kernels(program).items():
            texts.setdefault(id_, generate(kernel).source)
    return "\n".join(texts.values())


def _programs(module: ModuleOp) -> list[ProgramOp]:
    return [op for op in module.ops if isinstance(op, ProgramOp)]
