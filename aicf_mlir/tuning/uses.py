"""A use of an op as a line of text: what its kernels depend on, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aicf_mlir.ir.registry import Operand, OperandSpec, Use, schemas, segments


def text_of(use: Use) -> str:
    """Such as "gemm(a: f32[64, 256], b: f32[256, 8]) -> (out: f32[64, 8]) {trans_a = false}".

    Operands that do not lie dense in memory say their strides, in elements; attributes stand in the order of their names.
    """
    schema, (inputs, outputs) = schemas()[use.op], use.counts or (None, None)
    attrs = ", ".join(f"{name} = {_value(value)}" for name, _, value in sorted(use.attrs))
    operands = _operands(schema.inputs, inputs, use.inputs)
    results = _operands(schema.outputs, outputs, use.outputs)
    return f"{use.op}({operands}) -> ({results})" + (f" {{{attrs}}}" if attrs else "")


def _operands(rows: Sequence[Operand], counts: Sequence[int] | None, specs: Sequence[OperandSpec]) -> str:
    return ", ".join(
        f"{name}: {_tensor(spec)}" for name, own in segments(rows, counts, specs).items() for spec in own
    )


def _tensor(spec: OperandSpec) -> str:
    strides = "" if len(spec) == 2 else f" by [{', '.join(map(str, spec[2]))}]"
    return f"{spec[0]}[{', '.join(map(str, spec[1]))}]{strides}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)  # pyright: ignore[reportUnknownArgumentType]
