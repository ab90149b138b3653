"""The rates that this machine reaches with the kernels of the plans: bytes a second of a copy, operations a second of a product.

Both are launches of the runtime, measured by the marks that measure a step: `copy` between two arenas that no cache holds, and
`gemm` of square matrices of a few sizes. They are measured for each element type when a plan first has it, "tf32" for f32 that
may be rounded. Each runs some times and the fastest counts, for a floor is the best possible time. They are measured once in a
process for a device and a number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from aicf_mlir import _C
from aicf_mlir.analysis.launches import TF32
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir.attributes import AttributeValue
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.ir.registry import TensorSpec, Use, select_kernel

RUNS = 10
LONGEST = 0.3
"""Seconds after which a slow kernel is not run again."""

COPIED = {"cpu": 64 << 20, "cuda": 256 << 20}
"""Bytes that are copied, by the kind of device."""
SIDES = {"cpu": (256, 512, 1024), "cuda": (2048, 4096)}
"""Rows and columns of the matrices: the fastest size depends on caches and on other load."""

NO_ATTRIBUTES: Mapping[str, AttributeValue] = {}

FILLING = 0x3C
"""The value of every byte of the operands: a small number in every type. Zeros would cost a GPU less power, and run faster."""


@dataclass(frozen=True)
class Rates:
    """The rates of one device."""

    copy: float
    """The bytes read and written in a second."""
    products: Mapping[str, float | None]
    """Floating-point operations a second by element type; None if no kernel multiplies such elements."""

    def floor(self, nbytes: int, flops: int | None, element: str | None) -> float:
        """The seconds of these bytes or operations at these rates, whichever is longer."""
        product = self.products.get(element) if element is not None else None
        computing = flops / product if flops and product else 0.0
        return max(nbytes / self.copy, computing)


def rates_of(device: str, elements: set[str]) -> Rates:
    """The rates of `device` ("cpu", "cuda:0") for these element types."""
    threads = _C.threads() if device == "cpu" else 0
    products = {element: _product_rate(device, threads, element) for element in sorted(elements)}
    return Rates(_copy_rate(device, threads), products)


@cache
def _copy_rate(device: str, threads: int) -> float:
    nbytes = COPIED[device.partition(":")[0]]
    tensor = ("f32", (nbytes // byte_size("f32", ()),))
    return 2 * nbytes / _fastest(device, "copy", [tensor], tensor)


@cache
def _product_rate(device: str, threads: int, element: str) -> float | None:
    rates: list[float] = []
    for side in SIDES[device.partition(":")[0]]:
        tensor = ("f32" if element == TF32 else element, (side, side))
        attrs = {"allow_tf32": True} if element == TF32 else {}
        try:
            rates.append(2 * side**3 / _fastest(device, "gemm", [tensor, tensor], tensor, attrs))
        except SelectionError:
            return None
    return max(rates)


def _fastest(
    device: str,
    op: str,
    operands: list[TensorSpec],
    result: TensorSpec,
    attrs: Mapping[str, AttributeValue] = NO_ATTRIBUTES,
) -> float:
    """Seconds of the fastest of some launches of `op`; SelectionError if no kernel supports it."""
    kernel_id, workspace = select_kernel(Use.of(op, operands, [result], attrs), _C.target_of(device))
    arenas = {f"operand{i}": _C.Arena(device, byte_size(*operand)) for i, operand in enumerate(operands)}
    for arena in arenas.values():
        arena.fill(FILLING)
    places = [(name, 0, *operand) for name, operand in zip(arenas, operands, strict=True)]
    arenas |= {"result": _C.Arena(device, byte_size(*result)), "workspace": _C.Arena(device, workspace)}
    launch: _C.Launch = {
        "op": op,
        "kernel_id": kernel_id,
        "inputs": places,
        "outputs": [("result", 0, *result)],
        "counts": None,
        "attrs": dict(attrs),
        "workspace": ("workspace", 0, workspace) if workspace else None,
    }
    executor = _C.Executor(device, arenas, [launch])
    executor.run()  # pages, caches and the setup of a kernel in its first run
    seconds: list[float] = []
    while len(seconds) < RUNS and sum(seconds) < LONGEST:
        seconds.append(executor.time_step())
    return min(seconds)
