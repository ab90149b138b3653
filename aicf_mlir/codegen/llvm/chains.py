"""A chain for a CPU: a function of it calls one of a part (codegen/chain_parts.py) with the addresses that this takes."""

from __future__ import annotations

from collections.abc import Callable

from aicf_mlir.codegen.chain_parts import SCRATCH, Address, ChainParts, PlacedKernel
from aicf_mlir.kernels.back_to_back import BackToBackKernel
from aicf_mlir.kernels.kernel import Code, Kernel, Phase

SHARED = ("declare", "attributes")
"""The beginnings of lines that appear once in a module."""

Generate = Callable[[Kernel], Code]


def chain_code(kernel: BackToBackKernel, generate: Generate, size: int) -> Code:
    """The phases of all parts, one after the other; `size` is that of the workspace."""
    parts = ChainParts(kernel)
    texts: dict[str, list[str]] = {}
    shared: set[str] = set()
    phases: list[Phase] = []
    callers: list[str] = []
    for part in parts:
        code, own = generate(part.kernel), f"{kernel.symbol}_{part.kernel.symbol.removeprefix('gen_')}"
        lines = code.source.replace(part.kernel.symbol, own).splitlines()
        shared.update(line for line in lines if line.startswith(SHARED))
        texts[own] = [line for line in lines if not line.startswith(SHARED)]
        for phase in code.phases:
            name = f"{kernel.symbol}_{len(phases)}"
            function = phase.function.replace(part.kernel.symbol, own)
            callers += _caller(name, function, kernel, part, parts.offsets[SCRATCH])
            phases.append(Phase(name, phase.count, phase.grain))
    texts_of_parts = [line for lines in texts.values() for line in lines]
    source = "\n".join([f"; {kernel.symbol}", *texts_of_parts, *callers, *sorted(shared), ""])
    return Code(source, tuple(phases), size)


def _caller(
    name: str, function: str, kernel: BackToBackKernel, part: PlacedKernel, scratch: int
) -> list[str]:
    """A function that calls one of a part with an array of its addresses."""
    workspace = len(kernel.operands) + len(kernel.results)
    places = [*part.places, Address(None, scratch), Address(workspace + 1)]
    lines = [
        f"define void @{name}(ptr %operands, i64 %begin, i64 %end) #0 {{",
        f"  %given = alloca [{len(places)} x ptr], align 64",
    ]
    for at, place in enumerate(places):
        number = workspace if place.number is None else place.number
        lines += [
            f"  %s{at} = getelementptr ptr, ptr %operands, i64 {number}",
            f"  %q{at} = load ptr, ptr %s{at}",
            f"  %p{at} = getelementptr i8, ptr %q{at}, i64 {place.offset}",
            f"  %g{at} = getelementptr ptr, ptr %given, i64 {at}",
            f"  store ptr %p{at}, ptr %g{at}",
        ]
    return [*lines, f"  call void @{function}(ptr %given, i64 %begin, i64 %end)", "  ret void", "}"]
