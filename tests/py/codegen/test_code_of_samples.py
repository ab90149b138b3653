"""What every op compiles to, run on each device: special values, ragged shapes, and operands that lie across."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from random_ops import in_reach
from samples import NN_SAMPLES, Sample
from samples.collectives import is_tried_apart
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation, Region, SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.interpreters.arithmetic import Arithmetic
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.ir.signature import Key
from aicf_mlir.stages import run_stages
from aicf_mlir.text.parsing import make_context
from aicf_mlir.tools.compare import Reference
from aicf_mlir.tools.function_step import FunctionStep
from aicf_mlir.tools.plan_step import PlanStep, target_of

ELEMENTS = ("f32", "f32", "f64", "f16", "bf16")
"""Of ordinary samples; an op is always tried in the same. Special values are in f32."""


def of_ops() -> dict[str, list[tuple[Sample, str]]]:
    """By op: its samples at special values, and the first and the last of the others."""
    found: dict[str, list[Sample]] = {}
    for sample in NN_SAMPLES:
        name = sample.op_type().name
        if sample.in_range and not is_tried_apart(name):
            found.setdefault(name, []).append(sample)
    chosen: dict[str, list[tuple[Sample, str]]] = {}
    for name, samples in found.items():
        element = ELEMENTS[sum(name.encode()) % len(ELEMENTS)]
        special = [sample for sample in samples if not in_reach(sample)]
        others = [sample for sample in samples if sample not in special]
        chosen[name] = [(each, "f32") for each in special] + [
            (each, element) for each in (*others[:1], *others[-1:])
        ]
    return chosen


OPS = of_ops()


def function_of(samples: Sequence[tuple[Sample, str]], across: bool) -> tuple[ModuleOp, list[Array]]:
    """A function of these ops side by side, and its arguments; of which those of rank 2 are transposed where `across`."""
    block = Block()
    values: list[Array] = []
    results: list[Operation] = []
    for sample, element in samples:
        operands: list[SSAValue] = []
        for type_, array in zip(sample.types(element), sample.values(element), strict=True):
            turned = across and array.ndim == 2
            stored = np.ascontiguousarray(array.T) if turned else array
            argument = block.insert_arg(TensorType(type_.get_element_type(), stored.shape), len(values))
            values.append(stored)
            if turned:
                block.add_op(view := nn.TransposeOp(argument, [1, 0]))
                operands.append(view.result)
            else:
                operands.append(argument)
        block.add_op(op := sample.build(*operands))
        results.append(op)
    returned = [result for op in results for result in op.results]
    block.add_op(func.ReturnOp(*returned))
    types = (block.arg_types, [result.type for result in returned])
    return ModuleOp([func.FuncOp("samples", types, Region(block))]), values


@pytest.mark.parametrize("name", OPS)
def test_code_is_what_the_op_means(name: str, device: str) -> None:
    for across in (False, True):
        if across and not any("x" in text[:-4] for sample, _ in OPS[name] for text in sample.operands):
            continue
        module, arrays = function_of(OPS[name], across)
        step = FunctionStep(module.clone())
        values: dict[Key, Array] = dict(zip((each.key for each in step.arguments), arrays, strict=True))

        def interpret(
            arithmetic: Arithmetic, step: FunctionStep = step, values: dict[Key, Array] = values
        ) -> dict[Key, Array]:
            return step.run(values, 1, arithmetic)

        with np.errstate(all="ignore"):
            reference = Reference.of(interpret)
            run_stages(module, make_context(), target=target_of(device), first="lowered")
            results = PlanStep(module, device).run(values)
            for key in reference.rounded:
                error, allowed = reference.judge(key, results[key])
                assert error <= allowed, (
                    f"{key[1]}, across={across}: error {error:.3g}, allowed {allowed:.3g}"
                )
