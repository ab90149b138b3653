"""Random programs: every level of the pipeline, the runtime and its replay agree with torch.

Most are functions of nn ops, drawn from all that have a sample (`random_functions`), in every element type; each sixth is
a train step of a torch model with an optimizer of its own (`random_programs`).
`pytest -n 2 tests/py/random/test_random_programs.py --programs 5000 --seed 1000` runs as many as you like.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from costs import Some
from function_checks import check_function, smallest
from random_convolutions import convolutional
from random_functions import nn_program
from random_ops import FREE, PLANTED
from random_programs import STEPS_EACH, Program, program
from samples.collectives import is_tried_apart
from train_step_checks import Torch, check_train_step

from aicf_mlir.dialects import nn

FOUND = (97122, 910080, 610500, 700632, 215, 265, 30615)
"""
Programs that found a fault: a launch skipped by a check, of whose two results one was no update in place; numbers of a param
group of one parameter, which a result had replaced before another one read them; a state in
float64 that `step.check` had changed; an optimizer's `max(1.0, …)` of a NaN; in two infinite factors meet the paddings
of a convolution; an index of windows whose largest element is said to be a NaN, and is not.
"""


def test_every_level_agrees(program_seed: int) -> None:
    _run(program_seed, "cpu")


@pytest.mark.gpu
def test_the_gpu_agrees(program_seed: int) -> None:
    _run(program_seed, "cuda")


@pytest.mark.parametrize("found", FOUND)
def test_what_was_wrong_once_agrees(found: int) -> None:
    _run(found, "cpu", [program])


def _run(
    seed: int, device: str, kinds: Sequence[Callable[[int], Program]] = (program, convolutional)
) -> None:
    case = kinds[seed // STEPS_EACH % len(kinds)](seed) if seed % STEPS_EACH == 0 else nn_program(seed)
    try:
        if isinstance(case, Program):
            check_train_step(case, device)
        else:
            check_function(case, device)
    except Exception as error:
        test = "test_every_level_agrees" if device == "cpu" else "test_the_gpu_agrees"
        command = (
            f"python -m pytest tests/py/random/test_random_programs.py -k {test} --seed {seed} --programs 1"
        )
        text = repr(case) if isinstance(case, Program) else smallest(seed, device)
        raise AssertionError(f"{error}\n\nThe program:\n{text}\n\nTo reproduce:\n{command}") from error


def test_every_op_can_be_drawn() -> None:
    missing = {op.name for op in nn.NN.operations} - {*FREE, *PLANTED}
    assert all(map(is_tried_apart, missing)), missing


def test_programs_are_of_many_kinds() -> None:
    programs = [nn_program(seed) for seed in range(25)]
    assert len({name for each in programs for name in each.ops}) > 60
    assert {each.element for each in programs} == {"f64", "f32", "f16", "bf16"}
    assert sum(role == "grad" for each in programs for role, _ in each.expected) > 30


def test_what_is_wrong_is_found(some: Some) -> None:
    """An element of a gradient and a result that are a little off, and a NaN that should be none."""
    case = nn_program(1)
    keys = [key for key, value in case.expected.items() if value.is_floating_point() and value.numel()]
    for key, wrong in some([*itertools.product(keys[:4], (0.02, float("nan")))]):
        changed = case.expected[key].clone(memory_format=torch.contiguous_format)
        changed.reshape(-1)[-1] += wrong * (1 + changed.abs().max())
        with pytest.raises(AssertionError, match=key[1]):
            check_function(case.expecting({key: changed}), "cpu")


def test_weights_in_f32_are_not_excused_by_what_bf16_rounds() -> None:
    torchs = Torch(program(240), "cpu")
    assert torchs.case.options.low is torch.bfloat16
    for name, weight in torchs.run[0].items():
        if name.endswith("weight"):
            assert torchs.why(name, weight, 0) is None
            assert torchs.why(name, weight * 1.001, 0) is not None
