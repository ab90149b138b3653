"""What the schema of each op refuses, with the message: a row for every rule. And which kernel each predicate leads to."""

# ruff: noqa: E501  (a rule is a row, a row is a line)
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import refused_chains
from kernel_calls import KINDS
from kernel_cases import Maker
from kernel_cases.from_samples import of_samples
from refused_operands import REFUSED, Named, Specs

from aicf_mlir import _C
from aicf_mlir.errors import SelectionError, VerifyError
from aicf_mlir.ir.registry import Use, check_op, schemas


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs", "message"),
    REFUSED,
    ids=[f"{row[0]}-{row[4][:30]}" for row in REFUSED],
)
def test_refuses(
    op: str, inputs: Specs | Named, outputs: Specs | Named, attrs: dict[str, Any], message: str
) -> None:
    schema = schemas()[op]
    flat: list[Specs] = []
    counts: list[tuple[int, ...]] = []
    for given, rows in ((inputs, schema.inputs), (outputs, schema.outputs)):
        if isinstance(given, dict):
            flat.append([spec for row in rows for spec in given.get(row.name, [])])
            counts.append(tuple(len(given.get(row.name, [])) for row in rows))
        else:
            flat.append(given)
    with pytest.raises(VerifyError) as error:
        check_op(Use.of(op, flat[0], flat[1], attrs, (counts[0], counts[1]) if counts else None))
    assert str(error.value).removeprefix(op).lstrip(": ") == message


def refusal_of(use: Use) -> str:
    """What is said of a use; nothing where it is accepted."""
    try:
        check_op(use)
    except VerifyError as error:
        return str(error)
    return ""


SAMPLED = [op for op in KINDS if any(of_samples(Maker("f32"), op))]
ANY_TYPE = {
    *("copy", "argsort", "scan", "scatter_rows"),
    *("all_gather", "all_gather_status", "all_reduce", "all_reduce_status", "all_to_all"),
}
"""Ops with an operand of every element type, or of every number: operands beside them must be alike."""


@pytest.mark.parametrize("op", SAMPLED)
def test_refuses_what_differs_from_a_sample(op: str) -> None:
    """An operand of another type and a result of another shape, by name."""
    for use in (case.use(op) for case in of_samples(Maker("f32"), op)):
        assert not refusal_of(use)
        for i, spec in enumerate(use.inputs if op not in ANY_TYPE else ()):
            other = "i1" if spec[0] in ("i64", "i32") else "i64"
            other = "f32" if op == "check_index" else other  # which takes booleans and integers
            inputs = (*use.inputs[:i], (other, spec[1]), *use.inputs[i + 1 :])
            name = names_of(use)[i]
            assert refusal_of(replace(use, inputs=inputs)).startswith(f"{op}: {name}")
        spec, *others = use.outputs
        refusal = refusal_of(replace(use, outputs=((spec[0], (*spec[1], 7)), *others)))
        assert refusal.startswith(f"{op}: {schemas()[op].outputs[0].name}"), refusal


def names_of(use: Use) -> list[str]:
    """The name of each operand."""
    rows = schemas()[use.op].inputs
    if use.counts is None:
        return [row.name for row in rows]
    return [row.name for row, count in zip(rows, use.counts[0], strict=True) for _ in range(count)]


def test_accepts_the_chain_that_others_differ_from() -> None:
    op, inputs, outputs, attrs, _ = refused_chains.ACCEPTED
    counts = tuple(map(len, inputs.values())), tuple(map(len, outputs.values()))
    flat = [[spec for specs in given.values() for spec in specs] for given in (inputs, outputs)]
    check_op(Use.of(op, flat[0], flat[1], attrs, counts))


def test_every_schema_has_a_refusal() -> None:
    assert {row[0] for row in REFUSED} | set(SAMPLED) == set(KINDS)


def _selected(
    op: str, dtype: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], target: str, name: str = ""
) -> str:
    specs = [(dtype, shape) for shape in inputs]
    return _C.select_kernel(int(KINDS[op]), specs, [(dtype, output)], {}, target, name)[0]


@pytest.mark.parametrize(
    ("op", "dtype", "inputs", "output", "target", "kernel"),
    [
        ("add", "f16", [(3, 4), (3, 4)], (3, 4), "sm_90", "add_f16_half2"),
        ("add", "bf16", [(3, 4), (3, 4)], (3, 4), "sm_80", "add_bf16_half2"),
        ("add", "f16", [(4, 3), (4, 3)], (4, 3), "sm_90", "add_f16"),
        ("add", "f16", [(3, 4), (4,)], (3, 4), "sm_90", "add_f16"),
        ("add", "f32", [(3, 4), (3, 4)], (3, 4), "sm_90", "add_f32_vec4"),
        ("add", "f32", [(4,), (3, 4)], (3, 4), "sm_90", "add_f32"),
        ("relu", "f32", [(3, 3)], (3, 3), "sm_90", "relu_f32"),
        ("relu", "f32", [()], (), "sm_90", "relu_f32"),
        ("relu", "f16", [()], (), "sm_90", "relu_f16"),
        ("relu", "f64", [(4,)], (4,), "sm_90", "relu_f64"),
        ("bias_add", "f16", [(3, 4), (4,)], (3, 4), "sm_90", "bias_add_f16_half2"),
        ("bias_add", "f32", [(2, 6), (6,)], (2, 6), "sm_90", "bias_add_f32"),
        ("gemm", "f32", [(1024, 8), (8, 1024)], (1024, 1024), "sm_90", "gemm_f32_short_sums"),
        ("gemm", "f32", [(1024, 17), (17, 1024)], (1024, 1024), "sm_90", "gemm_f32_tiled_128x64"),
        ("gemm", "f32", [(512, 17), (17, 1024)], (512, 1024), "sm_90", "gemm_f32_tiled_64x64"),
        ("gemm", "f32", [(512, 8), (8, 511)], (512, 511), "sm_90", "gemm_f32_tiled_64x32"),
        ("gemm", "f32", [(352, 8), (8, 384)], (352, 384), "sm_90", "gemm_f32_tiled_32x32"),
        ("gemm", "f16", [(5, 7), (7, 3)], (5, 3), "sm_90", "gemm_f16_tc"),
        ("gemm", "f64", [(5, 7), (7, 3)], (5, 3), "sm_80", "gemm_f64_naive"),
        ("gemm", "f32", [(5, 7), (7, 3)], (5, 3), "cpu", "gemm_cpu_blas"),
        ("gemm", "bf16", [(5, 7), (7, 3)], (5, 3), "cpu", "gemm_cpu_plain"),
        ("gemm", "f32", [(2, 2**31), (2**31, 2)], (2, 2), "cpu", "gemm_cpu_plain"),
    ],
)
def test_selects(
    op: str, dtype: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], target: str, kernel: str
) -> None:
    assert _selected(op, dtype, inputs, output, target) == kernel


@pytest.mark.parametrize(
    ("kernel", "op", "dtype", "inputs", "output", "reason"),
    [
        ("relu_f32", "relu", "f16", [(3,)], (3,), "needs f32, got f16"),
        ("add_f16_half2", "add", "f16", [(4, 3)] * 2, (4, 3), "needs an even last dimension, got f16[4, 3]"),
        ("add_f16_half2", "add", "f16", [()] * 2, (), "needs an even last dimension, got f16[]"),
        ("add_f16_half2", "add", "f16", [(4, 2), (2,)], (4, 2), "does not broadcast, got f16[2] for a result of f16[4, 2]"),
        ("add_f32_vec4", "add", "f32", [(3,)] * 2, (3,), "needs a number of elements divisible by 4, got f32[3]"),
        ("bias_add_f32_vec4", "bias_add", "f32", [(4, 3), (3,)], (4, 3), "needs a last dimension divisible by 4, got f32[4, 3]"),
        ("gemm_f32_tiled_64x64", "gemm", "f32", [(5, 7), (7, 3)], (5, 3), "too few tiles to fill the chip: those of 16x16 take less time, got 1*5*3"),
        ("gemm_cpu_blas", "gemm", "f16", [(5, 7), (7, 3)], (5, 3), "needs f32 or f64, got f16"),
        ("gemm_cpu_blas", "gemm", "f32", [(1, 2**31), (2**31, 1)], (1, 1), "needs dimensions below 2^31, got m = 1, n = 1, k = 2147483648"),
    ],
)  # fmt: skip
def test_says_why_a_kernel_does_not_fit(
    kernel: str, op: str, dtype: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], reason: str
) -> None:
    with pytest.raises(SelectionError) as error:
        _selected(op, dtype, inputs, output, "cpu" if "cpu" in kernel else "sm_90", kernel)
    assert str(error.value).endswith(f": {reason}")
