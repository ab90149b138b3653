"""Members of several kinds as one grid: each block belongs to one of them, and runs the code that the member has by itself.

The text of a member becomes a function in a namespace of its own. Its parameters are its addresses and the place of the block in
its own grid, by CUDA's names for them. Members with the same text share a function. Blocks of the longest members come first.
Members run in blocks of one size: members with barriers use all threads; in members without, the threads that are not needed end
at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

from aicf_mlir.codegen.cuda import column_schedules, columns, gemm_maps, maps, row_schedules, rows, split_rows
from aicf_mlir.codegen.cuda.access import begin, find, head, index_of, pointer, signature, tensors
from aicf_mlir.codegen.cuda.dependency import READ_AHEAD
from aicf_mlir.codegen.cuda.products import header_text, is_small_product
from aicf_mlir.codegen.cuda.scalars import STORED, stored
from aicf_mlir.codegen.cuda.segments import ADDRESSES, table
from aicf_mlir.codegen.cuda.text import Scope, Text, closure, line_of
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir.body import TRANSCENDENTAL, is_table
from aicf_mlir.kernels.column_sums import has_column_sums
from aicf_mlir.kernels.horizontal import HorizontalKernel
from aicf_mlir.kernels.kernel import Code, Kernel, Phase, collapse, elements

THREADS = 256
"""The threads of a block: those of the tiles of small results."""
RESIDENT, RESIDENT_TF32 = 3, 2
"""Blocks that a multiprocessor has at the same time, at least; with operands of TF32 a thread needs more registers."""
ORDER = ("rowwise", "colwise", "gemm_map", "map")
"""Kinds of members, those whose blocks take longest first."""
CHOSEN = 3
"""Members of one text among which an address is chosen; of more it is looked up. An index that is not known to the compiler
makes a block wait for the cache of the constants, several times one after the other: 1000 cycles on an H200 instead of 400."""
AHEAD = 8
"""Vectors that a thread of a long row reads before it adds them: its one block should not take longer than others."""

_FUNCTION = re.compile(
    r'extern "C" __global__ void __launch_bounds__\([^)]*\) \w+\(\n(?P<parameters>.*?)\) \{\n'
    r"(?P<begin>  dependency_wait\(\);\n  if \(predicate != nullptr && \*predicate != 0\) return;\n|  prefetch\(\);\n)"
    r"(?P<body>.*)\}\n",
    re.DOTALL,
)


@dataclass(frozen=True)
class MemberCode:
    """The code of a member, without the parts that all members share."""

    header: str
    """Path of the device code that it needs, or nothing."""
    declarations: str
    parameters: str
    body: str
    blocks: int
    threads: int
    shared: int
    waits: bool
    """True if the body waits for the previous launch, after its reads ahead."""


def part_of(kernel: Kernel) -> MemberCode | str:
    """The code of a kernel as a member of a grid, or the reason why it cannot be one."""
    header = ""
    if kernel.ahead and kernel.kind != "gemm_map":
        return "only a product reads operands ahead; leave its operands out of `ahead`"
    match kernel.kind:
        case "gemm_map":
            if not is_small_product(tile := gemm_maps.tile(kernel)):
                return "a product of large tiles has a launch of its own"
            header, made = tile["header"], gemm_maps.code(kernel)
        case "map":
            made = small_map(kernel) if is_small_map(kernel) else maps.code(kernel, maps.schedule(kernel))
        case "colwise" if not kernel.goes_on and column_schedules.schedule(kernel).parts == 1:
            made = columns.code(kernel)
        case "rowwise" if not has_column_sums(kernel):
            plan = row_schedules.schedule(kernel)
            if split_rows.parts(kernel, plan) > 1:
                return "blocks that share rows take two launches"
            if plan.lanes > row_schedules.WARP:
                plan = plan.walked(THREADS, AHEAD)
            made = rows.code(kernel, plan)
        case _:
            return f"a {kernel.kind} has more than one part"
    (phase,) = made.phases
    source = made.source
    if header:
        source = source.removeprefix(header_text(header) + "\n")
    found = _FUNCTION.search(source)
    assert found is not None and found.end() == len(source), source
    return MemberCode(
        header,
        source[: found.start()],
        found["parameters"],
        found["body"],
        phase.count,
        phase.threads,
        phase.shared,
        READ_AHEAD in found["begin"],
    )


def is_small_map(kernel: Kernel) -> bool:
    """True if a map has a point for each lane of a warp, and results that take long and do not need each other."""
    return elements(kernel.domain) <= row_schedules.WARP and len(_apart(kernel)) > 1


def _apart(kernel: Kernel) -> list[list[int]]:
    """The results by the functions that compute them, at most one such group for each warp."""
    alike: dict[frozenset[int], list[int]] = {}
    for number, value in enumerate(kernel.body.results):
        used = closure(kernel, [value])
        lines = ((v, line_of(kernel, v)) for v in used)
        slow = frozenset(v for v, line in lines if line is not None and line.op in TRANSCENDENTAL)
        alike.setdefault(slow, []).append(number)
    groups = list(alike.values())
    most = THREADS // row_schedules.WARP
    return (
        [*groups[: most - 1], [n for group in groups[most - 1 :] for n in group]]
        if len(groups) > most
        else groups
    )


def small_map(kernel: Kernel) -> Code:
    """A map of few points: each warp computes some of the results of all, when all warps have read the operands."""
    text = Text()
    axes = collapse(kernel, range(len(kernel.domain)))
    read = [n for n in range(len(kernel.operands)) if not is_table(kernel.body.args[n])]
    with text.block(signature(kernel, kernel.symbol, THREADS)):
        begin(text)
        text.add(
            f"const unsigned warp = threadIdx.x / {row_schedules.WARP}u, lane = threadIdx.x % {row_schedules.WARP}u;"
        )
        text.add(
            f"const bool inside = lane < {elements(kernel.domain)}u;",
            "const unsigned point = inside ? lane : 0u;",
        )
        place = find(text, axes, "point", "c", "int")
        for number in read:
            text.add(f"const auto x{number} = widen({pointer(kernel, number)}[{place.offset(number)}]);")
        text.add("__syncthreads();", "if (!inside) return;")
        for warp, results in enumerate(_apart(kernel)):
            with text.block(f"if (warp == {warp}u)"):
                scope = Scope(text, kernel, lambda number: f"x{number}", lambda dim: index_of(dim, "", place))
                scope.need(kernel.body.results[n] for n in results)
                for n in results:
                    at = place.offset(len(kernel.operands) + n)
                    value = stored(kernel.results[n].element, scope[kernel.body.results[n]])
                    text.add(f"{pointer(kernel, len(kernel.operands) + n)}[{at}] = {value};")
    return Code(str(text), (Phase(kernel.symbol, 1, threads=THREADS),))


@dataclass(frozen=True)
class EqualMembers:
    """The members of one text, and the number of their first block."""

    kernel: Kernel
    part: MemberCode
    members: tuple[int, ...]
    first: int

    @property
    def blocks(self) -> int:
        """The number of blocks of all members."""
        return self.part.blocks * len(self.members)


def groups_of(kernel: HorizontalKernel) -> list[EqualMembers]:
    """The groups of all members by their texts, in the order of their blocks; SelectionError for one that cannot be a member."""
    order = sorted(
        range(len(kernel.parts)), key=lambda n: (ORDER.index(kernel.parts[n].kind), kernel.parts[n].symbol, n)
    )
    groups: list[EqualMembers] = []
    first = 0
    for _, numbers in groupby(order, key=lambda n: kernel.parts[n].symbol):
        same = tuple(numbers)
        part = part_of(kernel.parts[same[0]])
        if isinstance(part, str):
            raise SelectionError(f"member {same[0]} of a together: {part}")
        groups.append(EqualMembers(kernel.parts[same[0]], part, same, first))
        first += groups[-1].blocks
    return groups


def code(kernel: HorizontalKernel) -> Code:
    """The text and its one launch."""
    groups, text = groups_of(kernel), Text()
    headers = dict.fromkeys(group.part.header for group in groups if group.part.header)
    text.add(f"struct Addresses {{ void* of[{len(kernel.operands) + len(kernel.results)}]; }};")
    text.add("struct Place { unsigned x; };  // what blockIdx and gridDim are to a member")
    ahead = any(group.part.waits for group in groups)
    for number, group in enumerate(groups):
        _function(text, number, group, ahead)
        if len(group.members) > CHOSEN:
            firsts = [kernel.firsts[member] for member in group.members]
            table(text, f"unsigned operand{number}", [operand for operand, _ in firsts])
            table(text, f"unsigned result{number}", [len(kernel.operands) + result for _, result in firsts])
    rounds = any(part.product is not None and part.product.allow_tf32 for part in kernel.parts)
    with text.block(head([ADDRESSES], kernel.symbol, THREADS, RESIDENT_TF32 if rounds else RESIDENT)):
        if ahead:
            text.add(READ_AHEAD)
        else:
            begin(text)
        for number, group in enumerate(groups):
            end = group.first + group.blocks
            with text.block(f"if (blockIdx.x < {end}u)" if number < len(groups) - 1 else ""):
                _call(text, kernel, number, group)
    device_code = header_text(*headers)
    shared = max(group.part.shared for group in groups)
    blocks = groups[-1].first + groups[-1].blocks
    phase = Phase(kernel.symbol, blocks, threads=THREADS, shared=shared)
    return Code(f"{device_code}\n{text}", (phase,), one_table=True)


def _function(text: Text, number: int, group: EqualMembers, ahead: bool) -> None:
    """Write the function of a member's blocks; with `ahead` each member of the kernel waits itself for the previous launch."""
    part = group.part
    with text.block(f"namespace part{number}", "}"):
        if part.declarations.strip():
            text.add(part.declarations.rstrip("\n"))
        text.add("__device__ __forceinline__ void run(")
        text.add(f"{part.parameters.rstrip()}, const Place blockIdx, const Place gridDim) {{")
        if ahead and not part.waits:
            begin(text)
        if part.threads < THREADS:
            text.add(f"  if (threadIdx.x >= {part.threads}u) return;")
        text.add(part.body.rstrip("\n"), "}")


def _call(text: Text, kernel: HorizontalKernel, number: int, group: EqualMembers) -> None:
    """Write the call for the member that this block belongs to."""
    member, many = kernel.members[group.members[0]], len(group.members)
    text.add(f"const unsigned block = blockIdx.x - {group.first}u;")
    if many > 1:
        text.add(f"const unsigned which = block / {max(group.part.blocks, 1)}u;")
    place = f"block % {max(group.part.blocks, 1)}u" if many > 1 else "block"

    def address(results: bool, at: int) -> str:
        """The address of an operand or a result of the member."""
        if many > CHOSEN:
            return f"addresses.of[{'result' if results else 'operand'}{number}[which] + {at}]"
        firsts = [kernel.firsts[each][results] + results * len(kernel.operands) for each in group.members]
        chosen = f"addresses.of[{firsts[-1] + at}]"
        for each in range(many - 2, -1, -1):
            chosen = f"which == {each}u ? addresses.of[{firsts[each] + at}] : {chosen}"
        return chosen

    given = [address(False, n) for n in range(member.operands)]
    given += [address(True, n) for n in range(member.results)]
    types = _types(group.kernel)
    values = [f"static_cast<{type_}>({at})" for type_, at in zip(types, given, strict=True)]
    values += ["workspace", "predicate", f"Place{{{place}}}", f"Place{{{group.part.blocks}u}}"]
    text.add(f"part{number}::run({', '.join(values)});", "return;")


def _types(kernel: Kernel) -> list[str]:
    """The types of a launch's addresses: its operands, then its results."""
    own = [
        f"{'const ' if number < len(kernel.operands) else ''}{STORED[tensor.element]}*"
        for number, tensor in enumerate(tensors(kernel))
    ]
    if kernel.product is None:
        return own
    factors = [f"const {STORED[tensor.element]}*" for tensor in (kernel.product.a, kernel.product.b)]
    return [*factors, *own[1:]]
