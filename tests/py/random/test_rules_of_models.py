"""Rules of fusion alone, and some in any order, on train steps of the models of bench/model_rows.py in their tiny sizes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
import torch
from rule_sources import apply, on, text_of
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir import trace
from aicf_mlir.interpreters.arithmetic import EXACT
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.ir.signature import Key
from aicf_mlir.passes.fuse import RULES
from aicf_mlir.stages import run_stages
from aicf_mlir.text.parsing import make_context
from aicf_mlir.tools.function_step import FunctionStep
from aicf_mlir.tools.tensors import random_value

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

from model_rows import ROWS
from models_gpu import loss_of

MODELS = {name.partition(":")[0]: row for name, row in [*ROWS.items()][::-1] if row.of(True).body is None}
"""One row for each model that has a loss."""

ORDERS, MOST_RULES = 2, 8
"""Random orders of rules for each step."""
ZERO = 1e-12
"""What cancels in exact arithmetic, such as the gradient of the bias of keys, may be this far from 0."""
EPS = 1e-3
"""Of Adam: with less of it the rounding of a gradient that is 0 would move a parameter as far as any gradient."""


def lowered_step(name: str, target: str) -> ModuleOp:
    """The step of a model with AdamW, or with SGD and a limit for the norm of its gradients."""
    row = MODELS[name]
    case = row.of(True)
    torch.manual_seed(0)
    model, batch = case.model(), case.batch()
    clips = target != "cpu"
    kind = torch.optim.SGD if clips else torch.optim.AdamW
    given = {"momentum": 0.9} if clips else {}
    optimizer = kind(model.parameters(), 0.1, **given)
    module = trace(model, loss_of(row, case, "cpu"), batch, optimizer=optimizer).module
    options = {"clip-gradients": "norm=2.0"} if clips else {}
    run_stages(module, make_context(), target=target, until="lowered", options=options)
    return module


def arguments_of(module: ModuleOp) -> dict[Key, Array]:
    found = {tensor.key: random_value(tensor, 1) for tensor in FunctionStep(module).arguments}
    if (eps := ("host_scalar", "eps")) in found:
        found[eps] = np.full_like(found[eps], EPS)
    return found


def compare(before: Mapping[Key, Array], after: Mapping[Key, Array], told: str) -> None:
    """Without roundings, results differ by those of numbers in the text of a body."""
    assert before.keys() == after.keys()
    for key, expected in before.items():
        scale = np.abs(expected).max(initial=0.0)
        np.testing.assert_allclose(
            after[key], expected, 1e-5, 1e-6 * scale + ZERO, err_msg=f"{key} after {told}"
        )


@pytest.mark.parametrize("target", ["cpu", "sm_90", "sm_90+cublaslt+cudnn"])
@pytest.mark.parametrize("name", MODELS)
def test_rules_keep_the_steps_of_models(name: str, target: str) -> None:
    module = lowered_step(name, target)
    values, text = arguments_of(module), text_of(module)

    def meaning(of: ModuleOp) -> dict[Key, Array]:
        return FunctionStep(of).run(values, 1, EXACT)

    before, applied = meaning(module), set[str]()
    for rule in RULES:
        apply(alone := module.clone(), on(rule, target))
        if text_of(alone) != text:
            applied.add(rule.name)
            compare(before, meaning(alone), f"{rule.name}, {name}, {target}")
    assert {"fuse-optimizer", "fuse-loops"} <= applied
    rng = np.random.default_rng(crc32(f"{name} {target}".encode()))
    for _ in range(ORDERS):
        ordered, told = module.clone(), f"{name}, {target}"
        for number in rng.integers(len(RULES), size=int(rng.integers(2, MOST_RULES + 1))):
            rule = RULES[int(number)]
            told = f"{told}, {rule.name}"
            apply(ordered, on(rule, target))
        compare(before, meaning(ordered), told)
