"""Torch with ops that round otherwise: what moves, by how much, and what no rounding has made."""

from __future__ import annotations

import pytest
import torch

from aicf_mlir.step.eager import roundings
from aicf_mlir.step.eager.roundings import MovedRoundings, by_a_unit


def moving(seed: int = 0) -> MovedRoundings:
    return MovedRoundings(by_a_unit(seed))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_result_moves_by_at_most_a_unit_of_its_type(dtype: torch.dtype) -> None:
    x = torch.rand(1000, dtype=torch.float64).to(dtype) + 1
    with moving():
        ours = x * 0.3
    error = (ours.double() / (x * 0.3).double() - 1).abs()
    assert 0 < error.max() <= 1.5 * torch.finfo(dtype).eps


def test_what_no_rounding_has_made_stays() -> None:
    x = torch.randn(3, 5)
    with moving():
        made = [x.relu(), -x, x.abs(), x.sort().values, x.t(), torch.cat([x, x]), x.round(), x.ne(0).float()]
        made += [torch.where(x > 0, x, x * 0.0), torch.ones_like(x), torch.rand(3).new_zeros(2)]
    wanted = [x.relu(), -x, x.abs(), x.sort().values, x.t(), torch.cat([x, x]), x.round(), torch.ones(3, 5)]
    wanted += [torch.where(x > 0, x, 0), torch.ones(3, 5), torch.zeros(2)]
    for ours, theirs in zip(made, wanted, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_of_many_elements_all_copies_stay_and_few_others_do(dtype: torch.dtype) -> None:
    x = torch.randn(200_000, dtype=torch.float64).to(dtype)
    with moving():
        taken, changed = x.flip(0)[torch.randperm(len(x))], torch.cat([x, torch.zeros(9, dtype=dtype)]) / 3
    assert torch.equal(taken.sort().values, x.sort().values)
    if dtype != torch.bfloat16:  # its numbers are few, and most quotients are among the operands
        assert (changed[:-9] != x / 3).double().mean() > 0.2
    assert torch.equal(changed[-9:], torch.zeros(9, dtype=dtype))


@pytest.mark.parametrize("large", [roundings.LARGE, 10])
def test_an_element_of_a_large_tensor_is_looked_for_at_its_place(
    monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr(roundings, "LARGE", large)
    x = torch.randn(3, 50)
    with moving():
        kept, sorted_, changed = [x.relu(), torch.where(x > 0, x, -x)], x.sort().values, x * 0.3
    assert torch.equal(kept[0], x.relu())
    assert torch.equal(kept[1], x.abs())
    assert torch.equal(sorted_, x.sort().values) == (large > 10)
    assert not torch.equal(changed, x * 0.3)


def test_what_is_not_finite_stays() -> None:
    largest = torch.full((4,), torch.finfo(torch.float32).max / 2)
    with moving():
        assert torch.equal(largest * 4, torch.full((4,), torch.inf))
        assert bool((largest * 2).isfinite().all())
        assert bool((largest * torch.nan).isnan().all())


def test_backward_moves_too() -> None:
    x = torch.rand(100, requires_grad=True)
    loss = (x * 3).exp().sum()
    (exact,) = torch.autograd.grad(loss, x, retain_graph=True)
    with moving():
        (found,) = torch.autograd.grad(loss, x)
    assert not torch.equal(found, exact)
    assert (found / exact - 1).abs().max() < 1e-6


def test_a_sparse_gradient_stays() -> None:
    table = torch.nn.Embedding(9, 4, sparse=True)

    def gradient() -> torch.Tensor:
        (found,) = torch.autograd.grad(table(torch.tensor([1, 2, 1])).square().sum(), table.weight)
        return found.to_dense()

    with moving():
        found = gradient()
    torch.testing.assert_close(found, gradient())


def test_the_gradient_before_a_norm_and_its_mean_is_what_rounding_leaves() -> None:
    """It is 0 by definition; runs that round otherwise show how much of it is noise."""
    torch.manual_seed(0)
    weight = torch.randn(2, 3, 1, 1, requires_grad=True)
    x, factors = torch.randn(4, 3, 5, 5), torch.randn(4, 2)

    def gradient() -> float:
        normal = torch.nn.functional.instance_norm(torch.nn.functional.conv2d(x, weight))
        (found,) = torch.autograd.grad((normal.mean((2, 3)) * factors).sum(), weight)
        return float(found.abs().max())

    runs = []
    for seed in range(4):
        with moving(seed):
            runs.append(gradient())
    assert gradient() < max(runs) < 1e-4
