"""The composites that torch keeps whole: the same programs as by torch alone, and torch as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import ExportedProgram
from torch.nn import functional as F

from aicf_mlir.frontend import kept_whole
from aicf_mlir.frontend.kept_whole import FAKE_RULES, made_ready


class Model(torch.nn.Module):
    """Composites that stay whole, views and a buffer that is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)
        self.register_buffer("count", torch.zeros(()))
        self.count: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        y = torch.einsum("ij,jk->ik", self.norm(x), self.linear.weight).swapaxes(0, 1)
        return F.silu(F.linear(y, self.linear.weight[:, :2])).square() * self.count


@pytest.fixture
def program() -> ExportedProgram:
    return torch.export.export(Model(), (torch.randn(2, 4),))


def kernels() -> dict[str, dict[Any, Any]]:
    return {str(op): dict(op.py_kernels) for op in kept_whole._ready}  # pyright: ignore[reportPrivateUsage]


RULES: dict[str, dict[Any, Any]] = {
    "none": {},
    "of a composite": {torch.ops.aten.linear.default: lambda x, w: torch.mm(x, w.t())},
    "of an op": {torch.ops.aten.silu.default: lambda x: x * torch.sigmoid(x)},
}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_a_program_is_that_of_torch_and_torch_is_as_it_was(
    program: ExportedProgram, rules: dict[Any, Any]
) -> None:
    expected = program.run_decompositions(dict(rules)).graph_module.code
    assert "einsum" in expected
    assert ("aten.linear" in expected) == (torch.ops.aten.linear.default not in rules)
    assert ("aten.silu" in expected) == (torch.ops.aten.silu.default not in rules)
    with made_ready():
        program.run_decompositions(dict(rules))
    known, fake_rules = kernels(), dict(FAKE_RULES)
    for _ in range(2):
        with made_ready():
            assert program.run_decompositions(dict(rules)).graph_module.code == expected
    assert (kernels(), FAKE_RULES) == (known, fake_rules)
    assert program.run_decompositions(dict(rules)).graph_module.code == expected


def test_a_composite_with_other_kernels_is_made_ready_again(program: ExportedProgram) -> None:
    op, key = torch.ops.aten.einsum.default, torch._C.DispatchKey.PrivateUse1  # pyright: ignore
    with made_ready():
        program.run_decompositions({})

        def mine(*operands: Any) -> Any:
            raise AssertionError(operands)

        op.py_kernels[key] = mine
        try:
            program.run_decompositions({})
            assert op.py_kernels[key] is mine
        finally:
            del op.py_kernels[key]
        program.run_decompositions({})
        assert key not in op.py_kernels
