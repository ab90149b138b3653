"""`as_strided` of a tensor of the step, whatever layout torch has it in: values and gradients beside torch."""

from __future__ import annotations

import pytest
import torch
from beside_torch import compiled
from trained_ops import Function, OfOp, assert_op_trains, weighed

from aicf_mlir import TraceError

USES: dict[str, Function] = {
    "windows of rows": lambda x, b: x.as_strided((3, 3, 8), (8, 8, 1)),
    "windows of elements": lambda x, b: x.as_strided((5, 6, 3), (8, 1, 1)),
    "every second one": lambda x, b: x.as_strided((5, 4), (8, 2), 1),
    "of a transposed one": lambda x, b: x.t().as_strided((8, 3), (1, 8)),
    "of a part": lambda x, b: (x * 2)[1:, 2:].as_strided((2, 6), (8, 1)),
    "by its own strides": lambda x, b: (y := (x + 1).t()).as_strided((4, 5), y.stride(), 3),
    "one element": lambda x, b: x.as_strided((), (), 9),
    "written to": lambda x, b: (y := x.clone()).as_strided((5,), (9,)).mul_(3.0).sum() + y.sum(),
}


@pytest.mark.parametrize("name", [name for name in USES if name != "written to"])
def test_a_view_of_memory_trains_as_torch(name: str) -> None:
    assert_op_trains(USES[name], {"b": torch.zeros(2)}, torch.float32)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (USES["written to"], r"as_strided_scatter|as_strided"),
        (lambda x, b: x * b["b"].as_strided((5, 1), (1, 1)), "memory that the step has not made"),
        (lambda x, b: (x * 2)[:2].clone().as_strided((4, 8), (8, 1)), r"out of bounds|has not"),
    ],
    ids=["written", "batch", "beyond"],
)
def test_what_is_not_known_of_memory_is_refused(function: Function, reason: str) -> None:
    with pytest.raises(TraceError, match=reason):
        compiled(OfOp(function, torch.float32), weighed, {"b": torch.zeros(9)})
