"""Each rule of fusion alone, and rules in any order, on functions of whole numbers: the meaning stays to the last bit.

`pytest tests/py/random/test_rules_alone.py --programs 2000 --seed 100` takes as many functions for each rule as you like.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from drafts import Program
from rule_sources import SOURCES, TARGETS, apply, mixed_program, on, program_of, text_of

from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.ir.signature import Key
from aicf_mlir.ir.verify import verify_module
from aicf_mlir.passes.fuse import RULES, FusePass
from aicf_mlir.text.parsing import make_context
from aicf_mlir.tools.function_step import FunctionStep

MOST_RULES = 12

Results = dict[Key, Array]


def meaning(program: Program) -> Results:
    return FunctionStep(program.module).run(program.values, 1, program.arithmetic)


def compare(program: Program, before: Mapping[Key, Array], told: str) -> None:
    """Whole numbers are equal. Others differ by roundings to f32, which numbers in the text of a body have."""
    after = meaning(program)
    assert before.keys() == after.keys(), told
    for key, expected in before.items():
        where = f"{key} after {told}"
        if program.is_exact:
            np.testing.assert_array_equal(after[key], expected, err_msg=where)
        else:
            scale = np.abs(expected).max(initial=0.0)
            np.testing.assert_allclose(after[key], expected, 1e-6, 1e-8 * scale, err_msg=where)


def test_each_rule_alone_keeps_the_meaning(program_seed: int) -> None:
    """Each on a function of its own, on which it must find something to do."""
    assert SOURCES.keys() == {rule.name for rule in RULES}
    for number, rule in enumerate(RULES):
        program, target = program_of(number, program_seed)
        verify_module(program.module)
        before = meaning(program)
        for other in RULES:
            if other.name in SOURCES[rule.name].after:
                apply(program.module, on(other, target))
        text = text_of(program.module)
        told = f"rule {number}, {rule.name}, {target}\n{text}"
        apply(program.module, on(rule, target))
        assert text_of(program.module) != text, f"nothing to do for {told}"
        compare(program, before, told)


def test_each_rule_alone_keeps_mixed_programs(program_seed: int) -> None:
    """All rules alone, each on a function with what others take."""
    target = TARGETS[program_seed % len(TARGETS)]
    program = mixed_program(np.random.default_rng(program_seed), target)
    verify_module(program.module)
    text, before = text_of(program.module), meaning(program)
    for rule in RULES:
        alone = replace(program, module=program.module.clone())
        apply(alone.module, on(rule, target))
        if text_of(alone.module) != text:
            compare(alone, before, f"{rule.name}, {target}\n{text}")


def test_rules_in_any_order_keep_mixed_programs(program_seed: int) -> None:
    """Some rules, some of them more than once, and then all that `fuse` adds to them."""
    target = TARGETS[program_seed % len(TARGETS)]
    rng = np.random.default_rng([1, program_seed])
    program = mixed_program(rng, target)
    verify_module(program.module)
    text, before, told = str(program.module), meaning(program), target
    for number in rng.integers(len(RULES), size=int(rng.integers(1, MOST_RULES + 1))):
        rule = RULES[int(number)]
        told = f"{told}, {rule.name}"
        apply(program.module, on(rule, target))
        compare(program, before, f"{told}\n{text}")
    FusePass(target).apply(make_context(), program.module)
    verify_module(program.module)
    compare(program, before, f"{told}, fuse\n{text}")
