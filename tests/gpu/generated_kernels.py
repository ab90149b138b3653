"""Runs generated CUDA kernels and compares them with NumPy; a pack of them needs NumPy and a driver only.

    python tests/gpu/generated_kernels.py [--seed S] [--count N] [--products N] [--only WORD] [--schedules N]
                                                                      generates, compiles and runs
    python tests/gpu/generated_kernels.py --pack FILE                 generates and compiles, on any machine
    python tests/gpu/generated_kernels.py --run FILE                  runs what was packed

Each kernel starts with poisoned results, 20 times and three times as a graph: always the same bits, nothing written
beside them; then in place, and once where the status says that nothing may happen. Exit status 1 if any is wrong.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from cuda_driver import LOCAL_BYTES, REGISTERS, Bytes, Driver
from numpy.typing import NDArray
from packed_kernels import Block, Case, Packed, read, write

GUARD, REPLAYS = 256, 3
LONGER = 8
"""A lane of a schedule that is not the chosen one may add up many more terms."""
CALL = 32
"""Bytes of local memory that a call may need, such as that of a division with a subnormal."""
EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-16, "f64": 2.0**-40}
LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38, "f64": np.inf}
NUMPY = {
    "f16": "float16",
    "bf16": "uint16",
    "f32": "float32",
    "f64": "float64",
    "i64": "int64",
    "i32": "int32",
    "i1": "bool",
}


def generate_cases(
    seed: int, count: int, each: int, target: str, word: str = "", schedules: int = 2
) -> Iterator[Case]:
    """Random kernels, those of models, special values, with so many schedules besides the chosen one; every `each`-th product; of
    these whose name has `word`.
    """
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "py" / "support"))
    from concurrent.futures import ThreadPoolExecutor
    from itertools import chain, islice

    from across_cases import across_cases
    from chain_cases import chain_cases
    from generated_cases import GeneratedCase, has_periodic, random_cases, span, special_cases
    from generated_models import model_cases
    from generated_shapes import shape_cases
    from product_cases import ProductCase, batch_cases, large_cases, other_cases, short_sum_cases, tile_cases

    from aicf_mlir.codegen.cuda import generate
    from aicf_mlir.codegen.nvrtc import compile_cuda
    from aicf_mlir.codegen.schedule import candidates
    from aicf_mlir.interpreters.numerics import NUMPY_TYPES
    from aicf_mlir.kernels.kernel import Phase, Tensor

    def of_phase(phase: Phase) -> tuple[str, int, int, int]:
        return phase.function, phase.count, phase.threads, phase.shared

    def block(tensor: Tensor) -> Block:
        size = span(tensor) * NUMPY_TYPES[tensor.element].itemsize
        return Block(tensor.element, list(tensor.shape), list(tensor.strides), tensor.alignment, size)

    def pack(case: GeneratedCase, chosen: bool) -> Case:
        kernel = case.kernel
        code = generate(kernel)
        places = [
            (r, o)
            for r, o in sorted(kernel.in_place)
            if kernel.results[r].strides == kernel.operands[o].strides
            and all(s for s, n in zip(kernel.results[r].strides, kernel.domain, strict=True) if n > 1)
            and kernel.results[r].alignment == kernel.operands[o].alignment
        ]
        packed = Packed(
            case.name,
            kernel.id,
            [of_phase(phase) for phase in code.phases],
            code.workspace,
            [block(tensor) for tensor in kernel.operands],
            [block(tensor) for tensor in kernel.results],
            places,
            has_periodic(kernel) or not chosen,
            1 if chosen else LONGER,
            of_phase(code.together) if code.together else None,
        )
        image = compile_cuda(code.source, target)
        return Case(
            packed,
            image,
            [np.ascontiguousarray(o).view(np.uint8) for o in case.operands],
            list(case.expected),
        )

    def pack_product(case: ProductCase) -> Case:
        code = case.code
        packed = Packed(
            case.name,
            case.function,
            [of_phase(phase) for phase in code.phases],
            code.workspace,
            [block(tensor) for tensor in case.operands],
            [block(tensor) for tensor in case.results],
            [],
            False,
            1,
        )
        image = compile_cuda(code.source, target)
        return Case(packed, image, [o.view(np.uint8) for o in case.blocks], list(case.expected))

    draw = random.Random(seed)

    def scheduled(case: GeneratedCase) -> Iterator[tuple[GeneratedCase, bool]]:
        first, *others = candidates(case.kernel)
        for kernel in (first, *draw.sample(others, min(schedules, len(others)))):
            yield replace(case, kernel=kernel), kernel is first

    cases = list(
        chain(
            random_cases(seed, count, target),
            model_cases(target=target),
            special_cases(target),
            shape_cases(target),
            across_cases(target),
        )
    )
    if target == "sm_90":
        cases += chain_cases(seed, target=target)
    of_products = (tile_cases, other_cases, short_sum_cases, batch_cases, large_cases)
    with ThreadPoolExecutor() as pool:
        wanted = [each for case in cases if word in case.name for each in scheduled(case)]
        yield from pool.map(pack, *zip(*wanted, strict=True))
        products = chain(*(made(target) for made in of_products))
        yield from pool.map(
            pack_product, (case for case in islice(products, 0, None, each) if word in case.name)
        )


class Memory:
    """One image of everything a kernel touches, with guards between: written and read back as a whole."""

    def __init__(self, case: Case, in_place: tuple[int, int] | None):
        self.case, packed = case, case.packed
        self.starts: list[int] = []
        used = GUARD
        for number, block in enumerate((*packed.operands, *packed.results)):
            result = number - len(packed.operands)
            if in_place and result == in_place[0]:
                self.starts.append(self.starts[in_place[1]])
                continue
            start = -(-used // 256) * 256 + block.alignment % 256
            self.starts.append(start)
            used = start + block.size + GUARD
        self.workspace = -(-used // 256) * 256
        self.status = -(-(self.workspace + packed.workspace + GUARD) // 256) * 256
        self.gates = self.status + 256
        gates = 8 * packed.together[1] if packed.together else 0
        self.image = np.full(self.gates + gates + 256, 0xA5, np.uint8)
        self.touched = np.zeros(self.image.size, np.bool_)
        for start, block in list(zip(self.starts, (*packed.operands, *packed.results), strict=True))[
            len(packed.operands) :
        ]:
            self.image[start : start + block.size] = 0xFF
            self.touched[start : start + block.size] = True
        for start, data in zip(self.starts, case.operands, strict=False):
            self.image[start : start + data.size] = data
        self.image[self.workspace : self.workspace + packed.workspace] = 0xFF
        self.touched[self.workspace : self.workspace + packed.workspace] = True
        self.image[self.status : self.status + 8] = 0
        self.image[self.gates : self.gates + gates] = 0
        self.touched[self.gates : self.gates + gates] = True

    def results(self, image: Bytes) -> list[Bytes]:
        """The blocks of the results."""
        packed = self.case.packed
        starts = self.starts[len(packed.operands) :]
        return [
            image[start : start + block.size] for start, block in zip(starts, packed.results, strict=True)
        ]


def values(data: Bytes, block: Block) -> NDArray[np.generic]:
    """The elements of a result, floats as they are, bf16 as f32."""
    flat = data.view(NUMPY[block.element])
    if block.element == "bf16":
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    if 0 in block.shape:
        return np.empty(block.shape, flat.dtype)
    return np.lib.stride_tricks.as_strided(flat, block.shape, [s * flat.itemsize for s in block.strides])


def difference(got: NDArray[np.generic], want: NDArray[np.generic], element: str, rounds: int) -> str:
    """What is wrong; empty where nothing is. `rounds` is how often the usual roundings are right."""
    if element not in EPSILON:
        return (
            "" if np.array_equal(got, want) else f"{int((got != want).sum())} of {got.size} elements differ"
        )
    with np.errstate(all="ignore"):
        found, true = got.astype(np.float64), want.astype(np.float64)
        true = np.where(np.abs(true) > LARGEST[element], np.copysign(np.inf, true), true)
        close = np.abs(found - true) <= rounds * EPSILON[element] * np.maximum(np.abs(true), 1)
    right = close | (found == true) | (np.isnan(found) & np.isnan(true))
    if right.all():
        return ""
    at = np.unravel_index(int(np.argmin(right)), right.shape) if right.shape else ()
    return f"{int((~right).sum())} of {right.size} elements, at {[int(i) for i in at]} {found[at]} for {true[at]}"


def check(driver: Driver, arena: int, case: Case, times: int) -> tuple[list[str], str]:
    """What is wrong with a kernel, and its registers."""
    packed, wrong = case.packed, list[str]()
    forms = [packed.phases, *([[packed.together]] if packed.together else [])]
    functions = [phase for phases in forms for phase in phases]
    kernels = dict(zip(functions, driver.kernels(case.image, [name for name, *_ in functions]), strict=True))
    for (function, _, _, shared), kernel in kernels.items():
        driver.allow_shared(kernel, shared)
        if (spilled := driver.attribute(kernel, LOCAL_BYTES)) > CALL and not packed.local:
            wrong.append(f"{function}: {spilled} bytes of local memory")
    registers = ", ".join(str(driver.attribute(kernel, REGISTERS)) for kernel in kernels.values())
    digests = set[str]()
    for phases in forms:
        together = phases is not packed.phases

        def launch(memory: Memory, phases=phases, together: bool = together) -> None:
            addresses = [arena + start for start in (*memory.starts, memory.workspace, memory.status)]
            addresses += [arena + memory.gates] if together else []
            for phase in phases:
                driver.launch(kernels[phase], *phase[1:], addresses, together)

        found, digest = check_form(driver, arena, case, times, launch)
        wrong += [f"{'together: ' if together else ''}{why}" for why in found]
        digests.add(digest)
    if len(digests) > 1:
        wrong.append("all phases together give other bits than one after the other")
    return wrong, registers


def check_form(
    driver: Driver, arena: int, case: Case, times: int, launch: Callable[[Memory], None]
) -> tuple[list[str], str]:
    """What is wrong with a kernel as it is launched by `launch`, and the digest of its results."""
    packed, wrong = case.packed, list[str]()

    def outcome(memory: Memory, graph: ctypes.c_void_p | None = None) -> Bytes:
        driver.upload(arena, memory.image)
        driver.replay(graph) if graph else launch(memory)
        return driver.download(arena, memory.image.size)

    memory = Memory(case, None)
    first = outcome(memory)
    if ((first != memory.image) & ~memory.touched).any():
        wrong.append("wrote outside of its results")
    for number, (data, block) in enumerate(zip(memory.results(first), packed.results, strict=True)):
        if why := difference(values(data, block), case.expected[number], block.element, packed.rounds):
            wrong.append(f"result {number}: {why}")

    def digest(image: Bytes) -> str:
        return hashlib.sha256(b"".join(bytes(data) for data in memory.results(image))).hexdigest()

    runs = {digest(first), *(digest(outcome(memory)) for _ in range(times - 1))}
    if len(runs) > 1:
        wrong.append(f"{len(runs)} different results in {times} runs")
    if any(phase[1] for phase in packed.phases):
        graph = driver.capture(lambda: launch(memory))
        if {digest(outcome(memory, graph)) for _ in range(REPLAYS)} != {digest(first)}:
            wrong.append("a replay differs from the eager run")
    for pair in packed.in_place:
        place = Memory(case, tuple(pair))
        parts = zip(place.results(outcome(place)), memory.results(first), packed.results, strict=True)
        if any(values(a, block).tobytes() != values(b, block).tobytes() for a, b, block in parts):
            wrong.append(f"differs with result {pair[0]} over operand {pair[1]}")
    memory.image[memory.status] = 1
    if (outcome(memory) != memory.image).any():
        wrong.append("runs though the status says that it may not")
    return wrong, digest(first)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40, help="random kernels of each kind (40)")
    parser.add_argument("--products", type=int, default=1, help="run every N-th product (1)")
    parser.add_argument("--schedules", type=int, default=2, help="of each, besides the chosen one (2)")
    parser.add_argument("--only", default="", metavar="WORD", help="those whose name has it")
    parser.add_argument(
        "--runs", type=int, default=20, help="eager runs of each, whose bits are compared (20)"
    )
    parser.add_argument("--target", default="sm_90", help="what --pack compiles for (sm_90)")
    parser.add_argument("--pack", type=Path, metavar="FILE")
    parser.add_argument("--run", type=Path, metavar="FILE")
    options = parser.parse_args()

    def generated(target: str) -> Iterator[Case]:
        return generate_cases(
            options.seed, options.count, options.products, target, options.only, options.schedules
        )

    if options.pack:
        write(generated(options.target), options.pack)
        return 0
    driver = Driver()
    cases = read(options.run) if options.run else generated(driver.target())
    arena = driver.allocate(1 << 26)
    checked, bad = 0, 0
    for case in cases:
        wrong, registers = check(driver, arena, case, options.runs)
        checked, bad = checked + 1, bad + bool(wrong)
        for why in wrong:
            print(f"{case.packed.name} ({case.packed.id}, registers {registers}): {why}", flush=True)
    print(f"{checked} generated kernels on {driver.target()}, {bad} wrong")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
