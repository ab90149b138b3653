"""Each rule of fusion alone, and rules in any order, keep what a function computes.

`pytest tests/py/passes/test_fusion_rules.py --programs 2000 --seed 100` takes as many functions as you like.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from function_checks import OPTIONS
from kernel_programs import random_arguments, random_function
from models import mlp, mse, regression
from programs import run_by_name
from random_functions import nn_program
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir import trace
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.ir.verify import verify_module
from aicf_mlir.passes.fuse import RULES, FusePass
from aicf_mlir.passes.fuse.rule import FusionRule
from aicf_mlir.passes.fuse.updates import FuseUpdatesPass
from aicf_mlir.stages import run_stages
from aicf_mlir.text.parsing import make_context
from aicf_mlir.tools.function_step import FunctionStep
from aicf_mlir.tools.tensors import random_value

TARGETS = ("cpu", "sm_80", "sm_90", "sm_90+cublaslt+cudnn", "sm_100")
MOST_RULES = 12


Results = dict[Any, Array]
"""By role and name."""


def drawn(rng: np.random.Generator, target: str) -> list[FusionRule]:
    """Rules in any order, some of them more than once."""
    chosen = rng.integers(len(RULES), size=int(rng.integers(1, MOST_RULES + 1)))
    return [replace(RULES[number], target=target) for number in chosen]


def apply(module: ModuleOp, rules: Sequence[FusionRule]) -> None:
    """Apply the rules, and verify after each."""
    for rule in rules:
        rule.apply(make_context(), module)
        verify_module(module)


def check(
    module: ModuleOp, run: Callable[[ModuleOp], Results], rules: Sequence[FusionRule], near: float = 1e-9
) -> None:
    """Compare what a function computes before the rules, after them, and after all that `fuse` adds to them."""
    text, told = str(module), f"{rules[0].target}: {', '.join(rule.name for rule in rules)}"
    before = run(module)
    apply(module, rules)
    compare(before, run(module), told, near)
    FusePass(rules[0].target).apply(make_context(), module)
    verify_module(module)
    compare(before, run(module), f"{told}, fuse\n{text}", near)


def compare(before: Results, after: Results, told: str, near: float) -> None:
    """A result differs by less than a few roundings."""
    assert before.keys() == after.keys()
    for name, expected in before.items():
        scale = np.abs(expected).max(initial=0.0)
        np.testing.assert_allclose(
            after[name], expected, rtol=near, atol=near / 100 * scale, err_msg=f"{name} after {told}"
        )


def test_rules_in_any_order_keep_the_meaning(program_seed: int) -> None:
    rng = np.random.default_rng(program_seed)
    target = TARGETS[program_seed % len(TARGETS)]
    module = random_function(program_seed)
    values = random_arguments(module, program_seed)
    check(module, lambda made: run_by_name(made, values), drawn(rng, target))


def test_rules_in_any_order_keep_the_meaning_of_lowered_ops(program_seed: int) -> None:
    """Functions of all ops of nn that have a sample, as far as they are of f64."""
    rng, seed = np.random.default_rng(program_seed), program_seed * 1000
    target = TARGETS[program_seed % len(TARGETS)]
    while (program := nn_program(seed)).compute != "f64" or program.special:
        seed += 1
    module = program.module.clone()
    run_stages(module, make_context(), target=target, until="lowered", options=OPTIONS)
    tensors = FunctionStep(module).arguments
    values = {
        tensor.key: program.values[tensor.key] if tensor.key in program.values else random_value(tensor, 0)
        for tensor in tensors
    }
    check(module, lambda made: FunctionStep(made).run(values), drawn(rng, target))


def test_rules_in_any_order_keep_the_meaning_of_small_steps(program_seed: int) -> None:
    """A step of a GPU whose updates may become epilogues, and all its launches a few."""
    rng = np.random.default_rng(program_seed)
    widths = [int(width) for width in rng.integers(1, 40, size=int(rng.integers(2, 5)))]
    optimizer = (torch.optim.SGD, torch.optim.Adam)[program_seed % 2]
    net = mlp(*widths)
    traced = trace(net, mse, regression(8, widths[0], widths[-1]), optimizer=optimizer(net.parameters(), 0.1))
    target = TARGETS[1 + program_seed % (len(TARGETS) - 1)]
    run_stages(traced.module, make_context(), target=target, until="lowered")
    values = {
        tensor.key: random_value(tensor, program_seed) for tensor in FunctionStep(traced.module).arguments
    }
    if (
        eps := ("host_scalar", "eps")
    ) in values:  # else Adam moves by a gradient that is a rounding as by all others
        values[eps] = np.full_like(values[eps], 1e-3)
    rules = drawn(rng, target)
    first = [replace(rule, target=target) for rule in RULES if isinstance(rule, FuseUpdatesPass)]
    check(traced.module, lambda made: FunctionStep(made).run(values), [*first, *rules], 1e-4)
