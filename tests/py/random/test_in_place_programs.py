"""
Random functions with in-place writes into fresh tensors and views: loss, gradients and buffers are torch's, or it is refused.

`pytest tests/py/random/test_in_place_programs.py --campaign` runs 500.
"""

from __future__ import annotations

import pytest
import torch
from in_place_programs import InPlaceProgram, in_place_program
from in_place_steps import KINDS, assert_as_torch

from aicf_mlir import TraceError

REFUSED = (
    "changes a detached tensor in place",
    "changes a tensor in place under `no_grad`",
    "carries the gradient of a trained parameter into the next step",
)
"""Writes that torch trains with, and that a functional graph cannot follow."""


@pytest.mark.parametrize("seed", range(500))
def test_a_program_trains_as_in_torch(seed: int) -> None:
    program = in_place_program(seed)
    run(program, KINDS[seed % len(KINDS)])


def run(program: InPlaceProgram, kind: str) -> bool:
    """Whether a program trains; AssertionError with its text where it trains otherwise than torch."""
    try:
        assert_as_torch(program.body(), kind, torch.float64)
    except TraceError as error:
        if any(text in str(error) for text in REFUSED):
            return False
        raise AssertionError(f"{error}\n\n{program}") from error
    except AssertionError as error:
        raise AssertionError(f"{error}\n\n{program}") from error
    return True


def test_programs_are_of_many_kinds() -> None:
    programs = [in_place_program(seed) for seed in range(40)]
    text = "\n".join(map(repr, programs))
    assert text.count("no_grad") > 10 and text.count("detach") > 10 and text.count("m.") > 10
