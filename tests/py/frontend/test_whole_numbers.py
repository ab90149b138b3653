"""Arithmetic of whole numbers: shifts, and bounds that a float does not hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from aicf_mlir import TraceError, compile_eval_step

NUMBERS = [1, -3, 7, 0, -1, 2**31 - 1, -(2**31), 12345]
WIDE = [*NUMBERS, 2**62, -(2**63), 2**63 - 1, 2**53 + 1]
BITS = (-1, 0, 1, 5, 30, 31, 32, 62, 63, 64, 70)
LIMITS = {torch.int64: torch.iinfo(torch.int64), torch.int32: torch.iinfo(torch.int32)}

Function = Callable[[Tensor], Tensor]


def results(functions: dict[str, Function], whole: Tensor) -> dict[str, Tensor]:
    """What a step computes of a batch of whole numbers."""
    batch = {"x": torch.ones(2, 4), "whole": whole}

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return model(batch["x"]).sum(), {name: each(batch["whole"]) for name, each in functions.items()}

    step = compile_eval_step(nn.Linear(4, 2), loss_fn=loss, example=batch, device="cpu")
    step.eval_step(batch)
    return {name: step.outputs[name].clone() for name in functions}


def assert_torchs(functions: dict[str, Function], whole: Tensor) -> None:
    for name, found in results(functions, whole).items():
        torch.testing.assert_close(found, functions[name](whole), rtol=0, atol=0, msg=name)


@pytest.mark.parametrize("dtype", LIMITS)
def test_shifts_are_torchs(dtype: torch.dtype) -> None:
    functions: dict[str, Function] = {}
    for number, bits in enumerate(BITS):
        functions |= {
            f"left{number}": lambda i, bits=bits: i << bits,
            f"right{number}": lambda i, bits=bits: i >> bits,
            f"function_left{number}": lambda i, bits=bits: torch.bitwise_left_shift(i, bits),
            f"function_right{number}": lambda i, bits=bits: torch.bitwise_right_shift(i, bits),
        }
    assert_torchs(functions, torch.tensor(WIDE if dtype is torch.int64 else NUMBERS, dtype=dtype))


def test_a_shift_by_a_tensor_is_refused() -> None:
    with pytest.raises(TraceError, match=r"__lshift__\.Tensor.* is not supported"):
        results({"y": lambda i: i << i}, torch.tensor([1, 2]))


@pytest.mark.parametrize("dtype", LIMITS)
def test_bounds_at_the_ends_of_a_type_are_none(dtype: torch.dtype) -> None:
    low, high = LIMITS[dtype].min, LIMITS[dtype].max
    functions: dict[str, Function] = {
        "both": lambda i: i.clamp(low, high),
        "above": lambda i: i.clamp(0, high),
        "below": lambda i: torch.clamp(i, low, 6),
        "one": lambda i: i.clamp(max=high),
        "other": lambda i: i.clamp_min(low),
        "within": lambda i: i.clip(-4, 9),
        "far": lambda i: i.clamp(max=2**30),
    }
    assert_torchs(functions, torch.tensor(WIDE if dtype is torch.int64 else NUMBERS, dtype=dtype))


def test_a_bound_that_is_not_held_is_refused() -> None:
    with pytest.raises(TraceError, match=r"the number 9007199254740993 .* more than 2\^53"):
        results({"y": lambda i: i.clamp(0, 2**53 + 1)}, torch.tensor(WIDE))
