"""One kernel call on a device: poisoned results between canaries, judged by the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from kernel_cases import FLOATS, Array, Case, Spec
from kernel_cases.places import Place, placed

from aicf_mlir.errors import SelectionError
from aicf_mlir.interpreters.kernel import meaning
from aicf_mlir.interpreters.numerics import NUMPY_TYPES, round_to
from aicf_mlir.ir.registry import may_alias, schemas, segments, select_kernel
from aicf_mlir.op_call import OpKind, op_call

KINDS = {name: OpKind(schema.number) for name, schema in schemas().items()}
ALL_ONES = 0xFF  # NaN in every float type, -1 in the integers
CANARY = 0xA5
TF32_UNIT = 2.0**-10  # of each of two operands; half of it where it is rounded to nearest
HALF_UNITS = {"f16": 2.0**-10, "bf16": 2.0**-7}
MARGIN = 256  # bytes on either side; keeps the alignment of planned slots


class Slot:
    """Memory of one operand on a device, between two margins of canaries.

    What lies between the elements of an input is poison, and of a result canaries.
    """

    def __init__(self, dtype: str, shape: tuple[int, ...], device: str, place: Place | None = None):
        self.dtype, self.shape, self.place = dtype, shape, place or placed(shape)
        self.nbytes = self.place.elements(shape) * NUMPY_TYPES[dtype].itemsize
        size = self.nbytes + 2 * MARGIN
        self.written = np.zeros(size, np.uint8)
        if device == "cpu":
            raw = np.zeros(size + MARGIN, np.uint8)
            start = -raw.ctypes.data % MARGIN
            self.raw: Any = raw[start : start + size]
            self.tensor: Any = self._elements(self.raw, NUMPY_TYPES[dtype])
        else:
            import torch

            self.raw = torch.zeros(size, dtype=torch.uint8, device=device)
            flat = self.raw[MARGIN : MARGIN + self.nbytes].view(getattr(torch, NUMPY_TYPES[dtype].name))
            first = flat.storage_offset() + self.place.offset
            self.tensor = flat.as_strided(shape, self.place.strides, first)

    def _elements(self, raw: npt.NDArray[np.uint8], dtype: np.dtype[Any] | None = None) -> Array:
        """The elements in `raw`; without a dtype, their bits."""
        flat = raw[MARGIN : MARGIN + self.nbytes].view(dtype or f"u{NUMPY_TYPES[self.dtype].itemsize}")
        return self.place.view(flat, self.shape)

    def fill(self, values: Array | None) -> None:
        """Write the values, or poison where there are none."""
        raw = self.written
        raw[:] = CANARY
        if values is not None:
            raw[MARGIN : MARGIN + self.nbytes] = ALL_ONES
        bits = self._elements(raw)
        bits[...] = ~bits.dtype.type(0) if values is None else values.copy().view(bits.dtype)
        if isinstance(self.raw, np.ndarray):
            self.raw[:] = raw
        else:
            import torch

            self.raw.copy_(torch.from_numpy(raw))

    def read(self) -> Array:
        """The values; fails if anything beside them has changed."""
        raw = self.raw.copy() if isinstance(self.raw, np.ndarray) else self.raw.cpu().numpy()
        values = self._elements(raw, NUMPY_TYPES[self.dtype]).copy()
        rest = self.written.copy()
        for memory in (raw, rest):
            self._elements(memory)[...] = 0
        assert (raw == rest).all(), "wrote outside of the result"
        return values


def slots(case: Case, device: str) -> tuple[list[Slot], list[Slot]]:
    """Memory for inputs and outputs."""
    every = [
        Slot(dtype, shape, device, place)
        for (dtype, shape), place in zip(case.specs, case.all_places, strict=True)
    ]
    return every[: len(case.inputs)], every[len(case.inputs) :]


def supports(kernel: str, op: str, case: Case, target: str) -> bool:
    """Whether the registry lets the kernel run the case."""
    try:
        select_kernel(case.use(op), target, kernel)
    except SelectionError:
        return False
    return True


def run(
    kernel: str, op: str, case: Case, device: str, aliases: Sequence[tuple[int, int]] = ()
) -> list[Array]:
    """The results of one call; `aliases` are pairs (output, input) that share their memory."""
    shared = dict(aliases)
    inputs, outputs = slots(case, device)
    outputs = [inputs[shared[i]] if i in shared else slot for i, slot in enumerate(outputs)]
    for slot in outputs:
        slot.fill(None)
    for slot, array in zip(inputs, case.inputs, strict=True):
        slot.fill(array)
    schema = schemas()[op]
    given, results = case.counts or (None, None)
    ran = op_call(
        KINDS[op],
        segments(schema.inputs, given, [slot.tensor for slot in inputs]),
        segments(schema.outputs, results, [slot.tensor for slot in outputs]),
        case.attrs,
        kernel,
    )
    assert ran == kernel
    overwritten = set(shared.values())
    for i, (slot, array) in enumerate(zip(inputs, case.inputs, strict=True)):
        assert i in overwritten or slot.read().tobytes() == array.tobytes(), f"input {i} was changed"
    return [slot.read() for slot in outputs]


def alias_pairs(op: str, case: Case) -> list[tuple[int, int]]:
    """Every (output, input) that the schema lets share memory."""
    return sorted(may_alias(case.use(op)))


def judge(op: str, case: Case, results: Sequence[Array]) -> str | None:
    """Why the results are wrong, or None. The reference is the interpreter before its last rounding."""
    for i, (got, reference, spec) in enumerate(zip(results, _reference(op, case), case.outputs, strict=True)):
        if why := _judge(case, got, reference, spec):
            return f"output {i}: {why}"
    return None


@lru_cache(maxsize=4096)  # the variants of an op share their cases
def _reference(op: str, case: Case) -> list[Array]:
    wide = [(_wide(dtype), shape) for dtype, shape in case.outputs]
    return meaning(op, case.inputs, case.attrs, wide, counts=case.counts)


def _wide(dtype: str) -> str:
    return "f64" if dtype in FLOATS else dtype


def _judge(case: Case, got: Array, reference: Array, spec: Spec) -> str | None:
    dtype, shape = spec
    assert got.shape == shape
    best = round_to(reference, dtype)
    if dtype not in FLOATS:
        return None if np.array_equal(got, best) else f"expected {best.ravel()[:8]}, got {got.ravel()[:8]}"
    with np.errstate(all="ignore"):
        values, rounded = got.astype(np.float64), best.astype(np.float64)
        for name, mask in (("NaN", np.isnan), ("+Inf", np.isposinf), ("-Inf", np.isneginf)):
            if (mask(values) != mask(rounded)).any():
                at = np.argwhere(mask(values) != mask(rounded))[0]
                pair = f"expected {rounded[tuple(at)]}, got {values[tuple(at)]}"
                return f"{name} at other places, first at {at}: {pair}"
        finite = np.isfinite(rounded)
        values, rounded, reference = values[finite], rounded[finite], reference[finite]
        if case.exact:
            wrong = np.flatnonzero(values != rounded)
            return (
                f"{wrong.size} differ, first: expected {rounded[wrong[0]]}, got {values[wrong[0]]}"
                if wrong.size
                else None
            )
        # 25 units in the last place of the type that is computed in, beside the error of the last rounding.
        slack = 25 * float(np.finfo(np.float64 if dtype == "f64" else np.float32).eps)
        slack += case.inner_units * HALF_UNITS.get(case.inner_type or dtype, 0.0)
        if case.attrs.get("allow_tf32") and len(shape) > 1:  # sums of rows, bias_grad, are of f32
            slack += 2 * TF32_UNIT
        errors, unavoidable = np.abs(values - reference), np.abs(rounded - reference)
        if case.each:
            allowed = unavoidable + slack * np.maximum(np.abs(reference), 1.0)
            wrong = np.flatnonzero(errors > allowed)
            return (
                f"{wrong.size} differ, first: expected {reference[wrong[0]]}, got {values[wrong[0]]}"
                if wrong.size
                else None
            )
        scale = max(_root_mean_square(reference), case.scale)
        error, limit = _root_mean_square(errors), 1.1 * _root_mean_square(unavoidable) + slack * scale
        return None if error <= limit else f"error {error:.3e}, allowed {limit:.3e}"


def _root_mean_square(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0
