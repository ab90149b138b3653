"""CTC loss beside torch's own, in f64: values, gradients, sequences that have no alignment, lengths of a batch."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import ctc_loss as by_torch

from aicf_mlir import AicfError, compile_train_step
from aicf_mlir.frontend.ctc import ctc_loss

Given = tuple[Tensor, Tensor, Tensor, Tensor, int]


def drawn(seed: int) -> Given:
    """Of any lengths, with repeated labels, longer targets than inputs, and empty targets."""
    random = torch.Generator().manual_seed(seed)

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=random))

    steps, count, classes, most = number(1, 9), number(1, 4), number(2, 5), number(0, 5)
    blank = number(0, classes)
    log_probs = torch.randn(steps, count, classes, dtype=torch.float64, generator=random)
    labels = torch.tensor([each for each in range(classes) if each != blank])
    targets = labels[torch.randint(len(labels), (count, most), generator=random)]
    times = torch.randint(1, steps + 1, (count,), generator=random)
    return log_probs, targets, times, torch.randint(most + 1, (count,), generator=random), blank


@pytest.mark.parametrize(
    ("reduction", "zero_infinity"), list(product(("none", "mean", "sum"), (False, True)))
)
def test_loss_and_gradient_are_those_of_torch(reduction: str, zero_infinity: bool, program_seed: int) -> None:
    for seed in range(10 * program_seed, 10 * program_seed + 10):
        log_probs, targets, times, sizes, blank = drawn(seed)
        a, b = (log_probs.clone().requires_grad_() for _ in range(2))
        expected = by_torch(a, targets, times, sizes, blank, reduction, zero_infinity)
        found = ctc_loss(b, targets, times, sizes, blank, reduction, zero_infinity)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
        expected.sum().mul(1.5).backward()
        found.sum().mul(1.5).backward()
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-9, atol=1e-9, equal_nan=True)


def test_a_single_sequence_has_no_dimension_for_more() -> None:
    log_probs = torch.randn(6, 4, dtype=torch.float64).log_softmax(-1)
    for targets in (torch.tensor([1, 2, 2]), torch.tensor([[1, 2, 2]])):
        for sizes in ((6,), (3,)), (torch.tensor(6), torch.tensor(3)):
            found, expected = (
                each(log_probs, targets, *sizes, reduction="none") for each in (ctc_loss, by_torch)
            )
            torch.testing.assert_close(found, expected)


def test_what_pads_targets_may_be_no_class() -> None:
    for seed in range(20):
        log_probs, targets, times, sizes, blank = drawn(seed)
        padded = torch.where(torch.arange(targets.shape[1]) < sizes[:, None], targets, -1)
        found, expected = (
            each(log_probs, padded, times, sizes, blank, "none") for each in (ctc_loss, by_torch)
        )
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("as_tuple", [False, True])
def test_targets_may_be_one_after_the_other(as_tuple: bool) -> None:
    for seed in range(40):
        log_probs, targets, times, sizes, blank = drawn(seed)
        joined = torch.cat([row[:size] for row, size in zip(targets, sizes, strict=True)])
        lengths = (tuple(times.tolist()), tuple(sizes.tolist())) if as_tuple else (times, sizes)
        found = ctc_loss(log_probs, joined, *lengths, blank, "none")
        expected = by_torch(log_probs, targets, times, sizes, blank, "none")
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match="that are 4 together"):
        ctc_loss(torch.randn(5, 2, 3), torch.ones(4, dtype=torch.long), (5, 5), (2, 1))


def speech(seed: int) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return {
        "x": torch.randn(9, 3, 5),
        "labels": torch.cat((torch.randint(1, 4, (3, 4)), torch.full((3, 1), -1)), 1),
        "times": torch.randint(6, 10, (3,)),
        "sizes": torch.randint(1, 4, (3,)),
    }


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    log_probs = model(batch["x"]).log_softmax(-1)
    return nn.CTCLoss()(log_probs, batch["labels"], batch["times"], batch["sizes"])


def test_lengths_of_a_batch_train_as_torch() -> None:
    torch.manual_seed(0)
    model, same = nn.Linear(5, 4), nn.Linear(5, 4)
    same.load_state_dict(model.state_dict())
    step = compile_train_step(
        model, torch.optim.SGD(model.parameters(), 0.1), loss_fn=loss, example=speech(0)
    )
    optimizer = torch.optim.SGD(same.parameters(), 0.1)
    for seed in range(4):
        found = step.train_step(speech(seed))
        optimizer.zero_grad()
        expected = loss(same, speech(seed))
        expected.backward()
        optimizer.step()
        assert float(found) == pytest.approx(float(expected), rel=1e-5)
    torch.testing.assert_close(dict(model.state_dict()), dict(same.state_dict()), rtol=1e-4, atol=1e-6)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    with pytest.raises(AicfError, match="condition of the step does not hold"):
        step.train_step({**speech(0), "times": torch.tensor([10, 9, 9])})
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_a_target_that_does_not_fit_trains_as_torch(zero_infinity: bool) -> None:
    """Its loss is infinite, and its gradient NaN; or both are 0."""
    batch = {**speech(0), "times": torch.tensor([2, 9, 9]), "sizes": torch.tensor([4, 2, 3])}

    def infinite(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        log_probs = model(batch["x"]).log_softmax(-1)
        times, sizes = batch["times"], batch["sizes"]
        return nn.CTCLoss(zero_infinity=zero_infinity)(log_probs, batch["labels"], times, sizes)

    torch.manual_seed(0)
    model, same = nn.Linear(5, 4), nn.Linear(5, 4)
    same.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(same.parameters(), 0.1)
    step = compile_train_step(
        model, torch.optim.SGD(model.parameters(), 0.1), loss_fn=infinite, example=batch
    )
    found, expected = step.train_step(batch), infinite(same, batch)
    expected.backward()
    optimizer.step()
    assert bool(expected.isinf()) != zero_infinity
    torch.testing.assert_close(found, expected.detach())
    torch.testing.assert_close(
        dict(model.state_dict()), dict(same.state_dict()), equal_nan=True, rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"times": torch.tensor([9, 9])}, "expected 3 input_lengths, got 2"),
        ({"x": torch.randn(9, 3, 5, dtype=torch.bfloat16)}, "expected float32 or float64"),
    ],
)
def test_what_is_refused_is_one_clear_error(change: dict[str, Tensor], told: str) -> None:
    model = nn.Linear(5, 4).to(change["x"].dtype if "x" in change else torch.float32)
    with pytest.raises(AicfError, match=told):
        compile_train_step(
            model, torch.optim.SGD(model.parameters(), 0.1), loss_fn=loss, example={**speech(0), **change}
        )
