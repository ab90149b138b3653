"""Fused multiply-add where the processor has no instruction for it: the same bits by other arithmetic."""

from __future__ import annotations

import re

from aicf_mlir.codegen import functions
from aicf_mlir.codegen.llvm.operations import inline
from aicf_mlir.codegen.llvm.text import Function, Value

DECLARED = re.compile(
    r"^declare (?P<type>[^@]*) @llvm\.fma\.(?P<suffix>(?:v(?P<lanes>\d+))?f32)\(.*\)$", re.MULTILINE
)


def without_fused(text: str) -> str:
    """The text with functions of its own in place of the instruction."""

    def define(found: re.Match[str]) -> str:
        function, lanes = Function(), int(found["lanes"] or 1)
        args = [Value(f"%{name}", "f32", lanes) for name in "xyz"]
        (result,) = inline(function, functions.fused(), args, lanes)
        # Functions that it calls in turn are declared by the text already, or here.
        declared = [line for line in sorted(function.declared) if line not in text]
        head = f"define internal {found['type']} @fma.{found['suffix']}({', '.join(map(str, args))}) alwaysinline {{"
        return "\n".join([*declared, head, *function.lines, f"  ret {result}", "}"])

    return DECLARED.sub(define, text).replace("@llvm.fma.", "@fma.")
