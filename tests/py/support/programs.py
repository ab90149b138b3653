"""Steps written as text, and what the interpreter makes of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.ir.signature import argument_labels, result_labels
from aicf_mlir.passes.pipeline import parse_passes, run_passes
from aicf_mlir.text.parsing import make_context


def run_pipeline(module: ModuleOp, passes: str) -> ModuleOp:
    """A copy of `module` after `passes`, verified after each."""
    copy = module.clone()
    run_passes(make_context(), copy, parse_passes(passes))
    return copy


def step_function(module: ModuleOp) -> func.FuncOp:
    """The single function of a module."""
    (function,) = (op for op in module.ops if isinstance(op, func.FuncOp))
    return function


def run_by_name(module: ModuleOp, values: Mapping[str, Array]) -> dict[tuple[str, str], Array]:
    """Results by role and name, from arguments by name."""
    function = step_function(module)
    inputs = [np.asarray(values[label.name]) for label in argument_labels(function)]
    results = run_function(module, inputs)
    labels = [(label.role, label.name) for label in result_labels(function)]
    return dict(zip(labels, results, strict=True))
