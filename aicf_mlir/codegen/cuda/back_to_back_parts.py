"""A chain in parts, for chips and shapes that have no code for it in one launch (codegen/chain_parts.py).

Every kernel of a part has the parameters of the chain instead of its own, and finds its own among them. Each part is in a
namespace.
"""

from __future__ import annotations

import re

from aicf_mlir.codegen.chain_parts import SCRATCH, Address, ChainParts, PlacedKernel
from aicf_mlir.codegen.cuda import columns, gemm_maps, maps
from aicf_mlir.codegen.cuda.access import head, parameters
from aicf_mlir.codegen.cuda.products import header_text
from aicf_mlir.codegen.cuda.text import Text
from aicf_mlir.kernels.back_to_back import BackToBackKernel
from aicf_mlir.kernels.kernel import Code, Kernel, Phase

_HEAD = re.compile(
    r'extern "C" __global__ void __launch_bounds__\((?P<bounds>[^)]*)\) (?P<name>\w+)\(\n(?P<parameters>.*?)\) \{\n'
    r"(?P<begin>  dependency_wait\(\);\n  if \(predicate != nullptr && \*predicate != 0\) return;\n)",
    re.DOTALL,
)


def workspace_of(kernel: Kernel) -> int:
    """Scratch memory of a part, in bytes."""
    return columns.workspace(kernel) if kernel.kind == "colwise" else 0


def code(kernel: BackToBackKernel, size: int) -> Code:
    """The text of a chain, and the launches of its parts; `size` is that of the workspace."""
    parts, text, phases = ChainParts(kernel), Text(), list[Phase]()
    headers: dict[str, None] = {}
    for number, part in enumerate(parts):
        made, header = _code(part.kernel)
        own = f"{kernel.symbol}_{number}"
        source = made.source
        if header:
            headers[header] = None
            source = source.removeprefix(header_text(header) + "\n")
        source = source.replace(part.kernel.symbol, own)
        given = _given(part, parts.offsets[SCRATCH])
        with text.block(f"namespace part{number}", "}"):
            text.add(_HEAD.sub(lambda found, given=given: _head(kernel, found, given), source).rstrip("\n"))
        for phase in made.phases:
            function = phase.function.replace(part.kernel.symbol, own)
            phases.append(Phase(function, phase.count, threads=phase.threads, shared=phase.shared))
    return Code(f"{header_text(*headers)}\n{text}", tuple(phases), size)


def _code(kernel: Kernel) -> tuple[Code, str]:
    """The code of a part, and the path of the device code that it begins with."""
    match kernel.kind:
        case "gemm_map":
            return gemm_maps.code(kernel), gemm_maps.tile(kernel)["header"]
        case "colwise":
            return columns.code(kernel), ""
        case _:
            return maps.code(kernel, maps.schedule(kernel)), ""


def _given(part: PlacedKernel, scratch: int) -> list[str]:
    """The expressions for the addresses of a part, then for its workspace."""
    return [_address(place) for place in (*part.places, Address(None, scratch))]


def _address(place: Address) -> str:
    if place.number is not None:
        return f"chain{place.number}"
    return f"static_cast<void*>(static_cast<unsigned char*>(memory) + {place.offset})"


def _head(kernel: BackToBackKernel, found: re.Match[str], given: list[str]) -> str:
    """The beginning of a kernel: the parameters of the chain, and its own as variables."""
    own = [each.strip() for each in found["parameters"].split(",\n")][:-1]  # the last is the status
    types = [each.rpartition(" ") for each in own]
    lines = [
        f"  {type_} {name} = static_cast<{type_}>({at});\n"
        for (type_, _, name), at in zip(types, given, strict=True)
    ]
    addresses = [f"void* chain{number}" for number in range(len(parameters(kernel)))]
    first, last = found["bounds"].partition(",")[::2]
    whole = head(addresses, found["name"], int(first), int(last or 0)).replace("workspace", "memory")
    return f"{whole} {{\n{found['begin']}{''.join(lines)}"
