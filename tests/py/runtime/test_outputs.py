"""What a loss function returns beside the loss: torch's values, eager and replayed, in every shape group."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from models import classification, cross_entropy, mlp, to_device, values
from oracle import assert_same_bits
from torch import nn

from aicf_mlir import (
    BindError,
    GuardError,
    OutOfRangeError,
    StateError,
    TraceError,
    compile_eval_step,
    compile_train_step,
)
from aicf_mlir.ir.locations import SourceLocation
from aicf_mlir.runtime.certificate.tolerance import fault
from aicf_mlir.step.compiled_step import CompiledTrainStep
from aicf_mlir.tools.aicf_check import check
from aicf_mlir.tools.user_function import UserStep

Batch = dict[str, torch.Tensor]
FEATURES, CLASSES = 8, 4


def several(model: Any, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Outputs of every kind: undetached, of whole numbers and booleans, returned twice, inputs, parameters, constants."""
    logits = model(batch["x"])
    loss = F.cross_entropy(logits, batch["t"])
    hit = logits.argmax(1) == batch["t"]
    return loss, {
        "logits": logits,
        "again": logits,
        "part": logits[:, 1:3],
        "loss of all": loss,
        "hit": hit,
        "correct": hit.sum(),
        "accuracy": hit.float().mean(),
        "x": batch["x"],
        "turned": batch["x"].t(),
        "t": batch["t"],
        "0.weight": model[0].weight,
        "numbers": torch.tensor([1.0, 2.5], device=loss.device),
        "ones": torch.ones(3, device=loss.device),
        "half": logits.half(),
        "double": logits.double(),
        "int32": hit.int(),
    }


def made(
    device: str, loss_fn: Callable[..., Any] = several, sizes: tuple[int, ...] = (6,), **options: Any
) -> tuple[nn.Sequential, torch.optim.Optimizer, CompiledTrainStep, list[Batch]]:
    model = mlp(FEATURES, 16, CLASSES).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batches = [to_device(classification(size, FEATURES, CLASSES, seed=size), device) for size in sizes]
    step = compile_train_step(model, optimizer, loss_fn=loss_fn, example=batches, device=device, **options)
    return model, optimizer, step, batches


def assert_torchs(step: CompiledTrainStep, expected: dict[str, torch.Tensor]) -> None:
    assert list(step.outputs) == list(expected)
    assert len(step.outputs) == len(expected)
    for name, value in expected.items():
        found = step.outputs[name]
        assert not found.requires_grad
        torch.testing.assert_close(
            found, value.detach(), rtol=1e-3 if value.dtype is torch.half else 1e-4, atol=1e-5
        )


def test_outputs_are_those_of_torch(device: str) -> None:
    model, _, step, (batch,) = made(device)
    for _ in range(3):
        twin = copy.deepcopy(model)
        loss = step.train_step(batch)
        expected = several(twin, batch)
        torch.testing.assert_close(loss, expected[0].detach())
        assert_torchs(step, expected[1])


def test_the_step_trains_as_without_outputs(device: str) -> None:
    model, optimizer, step, (batch,) = made(device)
    other, its_optimizer, alone, _ = made(device, cross_entropy)
    for _ in range(4):
        torch.testing.assert_close(step.train_step(batch), alone.train_step(batch))
    for name, value in values(other, its_optimizer).items():
        torch.testing.assert_close(values(model, optimizer)[name], value)
    assert dict(alone.outputs) == {}


def test_replayed_outputs_are_eager_ones_bit_for_bit(device: str) -> None:
    eager = made(device)
    captured = made(device)
    captured[2].train_step(captured[3][0])
    captured[2].capture(captured[3][0])
    for _ in range(4):
        eager[2].train_step(eager[3][0])
    captured[2].replay(3)
    assert_same_bits(dict(captured[2].outputs), dict(eager[2].outputs))
    assert_same_bits(values(*captured[:2]), values(*eager[:2]))


def test_each_look_is_a_tensor_of_its_own(device: str) -> None:
    _, _, step, (batch,) = made(device)
    step.train_step(batch)
    seen = step.outputs["logits"]
    before = seen.clone()
    step.outputs["logits"].zero_()
    assert torch.equal(step.outputs["logits"], before)
    step.train_step(batch)
    assert torch.equal(seen, before)
    assert not torch.equal(step.outputs["logits"], before)


def test_each_shape_group_has_its_own(device: str) -> None:
    model, _, step, batches = made(device, sizes=(6, 3))
    for index in (0, 1, 0):
        twin = copy.deepcopy(model)
        step.train_step(batches[index])
        assert_torchs(step, several(twin, batches[index])[1])


def test_the_certificate_covers_them(device: str) -> None:
    _, _, step, (batch,) = made(device)
    step.train_step(batch)
    certificate = step.capture(batch, verify="bitwise")
    assert certificate.equal, certificate
    _, _, without, (batch,) = made(device, cross_entropy)
    without.train_step(batch)
    assert certificate.compared_bytes > without.capture(batch, verify="bitwise").compared_bytes


def test_an_evaluation_step_has_them(device: str) -> None:
    model, _, _, (batch,) = made(device)
    model.eval()
    step = compile_eval_step(model, loss_fn=several, example=batch, device=device)
    step.eval_step(batch)
    assert_torchs(step, several(model, batch)[1])


class Counting(nn.Module):
    """Updates a buffer in its forward."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, CLASSES)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return self.linear(x)


def test_a_buffer_that_the_step_updates(device: str) -> None:
    model = Counting().to(device)
    batch = to_device(classification(5, FEATURES, CLASSES), device)

    def counted(m: Any, b: Batch) -> Any:
        before = m.count.clone()
        loss = cross_entropy(m, b)
        return loss, {"before": before, "count": m.count, "later": m.count * 10}

    step = compile_train_step(
        model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn=counted, example=batch, device=device
    )
    for number in range(1, 4):
        step.train_step(batch)
        assert {name: int(value) for name, value in step.outputs.items()} == {
            "before": number - 1,
            "count": number,
            "later": 10 * number,
        }
    assert int(model.count) == 3


def test_a_skipped_step_changes_nothing_else(device: str) -> None:
    model, optimizer, step, (batch,) = made(device)
    step.train_step(batch)
    before = {name: value.clone() for name, value in values(model, optimizer).items()}
    with pytest.raises(OutOfRangeError, match="skipped whole"):
        step.train_step({**batch, "t": batch["t"] + CLASSES})
        step.synchronize()
    assert_same_bits(values(model, optimizer), before)
    twin = copy.deepcopy(model)
    step.train_step(batch)
    assert_torchs(step, several(twin, batch)[1])


def test_they_are_guarded_and_compiled_again(device: str) -> None:
    scale = {"by": 2.0}
    _, _, step, (batch,) = made(
        device, lambda m, b: (cross_entropy(m, b), {"scaled": b["x"].sum() * scale["by"]})
    )
    step.train_step(batch)
    torch.testing.assert_close(step.outputs["scaled"], batch["x"].sum() * 2)
    scale["by"] = 3.0
    with pytest.raises(GuardError, match=r"scale\['by'\] was"):
        step.train_step(batch)
    step.recompile()
    with pytest.raises(StateError, match="no step has run yet, so output 'scaled' has no value"):
        step.outputs["scaled"]
    step.train_step(batch)
    torch.testing.assert_close(step.outputs["scaled"], batch["x"].sum() * 3)
    assert "scaled" in step.outputs


def test_aicf_check_takes_them() -> None:
    batch, model = classification(6, FEATURES, CLASSES), mlp(FEATURES, 16, CLASSES)
    optimizer = torch.optim.Adam(model.parameters())
    user = UserStep(model, batch, optimizer, several, SourceLocation("user.py", 1))
    found = check(user, "cpu", 3)
    assert found.equal, str(found)
    assert any(row.name.startswith("output ") for row in found.rows)


def test_looking_for_what_is_not_there() -> None:
    _, _, step, (batch,) = made("cpu", lambda m, b: (cross_entropy(m, b), {"n": b["t"].sum()}))
    with pytest.raises(BindError, match=r"step: no output 'm'; there are n"):
        step.outputs["m"]
    with pytest.raises(StateError, match="no step has run yet"):
        step.outputs["n"]
    _, _, without, _ = made("cpu", cross_entropy)
    with pytest.raises(BindError, match=r"there are none; let loss_fn return \(loss, \{name: tensor\}\)"):
        without.outputs["m"]
    step.train_step(batch)
    step.close()
    with pytest.raises(StateError, match="the step is closed"):
        step.outputs["n"]


WRONG: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "a list": (
        lambda loss: (loss, [loss]),
        r"got tuple of \w+, list; return the loss, or \(loss, \{name: tensor\}\)",
    ),
    "two tensors": (lambda loss: (loss, loss), "expected one tensor as the result, got tuple of"),
    "three": (lambda loss: (loss, {}, {}), "expected one tensor as the result, got tuple of .*, dict, dict"),
    "loss that is a number": (lambda loss: (1.0, {"a": loss}), "got tuple of float, dict"),
    "a dictionary alone": (lambda loss: {"loss": loss}, "expected one tensor as the result, got dict"),
    "name that is a number": (
        lambda loss: (loss, {1: loss}),
        "names of outputs must be strings that are not empty, got 1",
    ),
    "name that is empty": (
        lambda loss: (loss, {"": loss}),
        "names of outputs must be strings that are not empty",
    ),
    "name that is no text": (lambda loss: (loss, {"\ud800": loss}), "output .* half of a surrogate pair"),
    "called loss": (
        lambda loss: (loss, {"loss": loss}),
        "no output can be called 'loss': that is what the step returns",
    ),
    "a number": (
        lambda loss: (loss, {"n": 3}),
        "output 'n' must be a torch.Tensor, got int; a number of Python is the same after every step",
    ),
    "a text": (lambda loss: (loss, {"n": "x"}), "output 'n' must be a torch.Tensor, got str$"),
    "of a dtype": (
        lambda loss: (loss, {"n": loss.to(torch.uint8)}),
        "is not supported|output 'n' is a tensor of torch.uint8; supported are",
    ),
    "without elements": (
        lambda loss: (loss, {"n": torch.zeros(0, 3)}),
        r"output 'n' has no elements: its shape is \(0, 3\)",
    ),
    "sparse": (
        lambda loss: (loss, {"n": torch.eye(2).to_sparse()}),
        r"output 'n' is a torch.sparse_coo tensor; make it dense",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_output(name: str) -> None:
    wrong, message = WRONG[name]
    model = mlp(FEATURES, CLASSES)
    before = {key: value.data_ptr() for key, value in model.state_dict().items()}
    with pytest.raises(TraceError, match=message):
        compile_train_step(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            loss_fn=lambda m, b: wrong(cross_entropy(m, b)),
            example=classification(5, FEATURES, CLASSES),
            device="cpu",
        )
    assert {key: value.data_ptr() for key, value in model.state_dict().items()} == before


def test_one_number_of_any_shape_is_a_loss(device: str) -> None:
    """As `backward` of torch takes it."""
    of_shape = made(device, lambda m, b: cross_entropy(m, b)[None, None], sizes=(5,))
    plain = made(device, cross_entropy, sizes=(5,))
    for _ in range(3):
        first, second = (step.train_step(batches[0]) for _, _, step, batches in (of_shape, plain))
        assert first.shape == () and torch.equal(first, second)


def test_the_loss_must_still_be_one_number() -> None:
    with pytest.raises(TraceError, match=r"the loss must be a 0-d float tensor, got float32\[5, 4\]"):
        made("cpu", lambda m, b: (m(b["x"]), {"n": b["t"]}), sizes=(5,))


def test_whole_numbers_that_rounding_decides_are_not_compared() -> None:
    expected, run = torch.tensor([1, 2]).numpy(), torch.tensor([1, 3]).numpy()
    assert fault(torch.tensor([1, 7]).numpy(), expected, [run]) is None
    assert fault(torch.tensor([0, 2]).numpy(), expected, [run]) == "other integers"
    assert fault(run, expected, []) == "other integers"
