"""Parameters that are parts of one flat tensor, as cuDNN lays out those of an LSTM: each moves by itself, nothing goes stale."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from beside_torch import assert_near
from replayed import Built, compiled, replay_differs, stepped
from torch import nn

from aicf_mlir import AicfError, TraceError, compile_train_step

STEPS = 4


class Tagger(nn.Module):
    """A recurrent layer over a sequence and a Linear."""

    def __init__(self, layer: Callable[..., nn.Module]):
        super().__init__()
        self.layer = layer(4, 6, batch_first=True)
        self.out = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.layer(x)[0])


def flatten(module: nn.Module, padding: int = 0) -> torch.Tensor:
    """Move the parameters into one tensor, with gaps of `padding` numbers; returns it."""
    parameters = list(module.parameters())
    flat = torch.zeros(sum(parameter.numel() + padding for parameter in parameters))
    start = 0
    for parameter in parameters:
        part = flat.detach()[start : start + parameter.numel()].view(parameter.shape)
        parameter.data = part.copy_(parameter.detach())
        start += parameter.numel() + padding
    return flat


def loss(model: Any, batch: Any) -> torch.Tensor:
    y = model(batch["x"])
    return (y * torch.linspace(0.5, 1.5, y.numel(), device=y.device).view(y.shape)).square().mean()


def built(model: nn.Module, device: str = "cpu") -> Built:
    """With Adam, and a batch."""
    torch.manual_seed(3)
    x = torch.randn(2, 5, 4, device=device)
    return model, torch.optim.Adam(model.parameters(), lr=1e-2), loss, {"x": x}


def tagger(layer: Callable[..., nn.Module] = nn.LSTM) -> Any:
    torch.manual_seed(1)
    return Tagger(layer)


def step_of(model: nn.Module) -> Any:
    ours = built(model)
    return compiled(ours, "cpu"), ours


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_train_as_whole_ones_do(layer: Callable[..., nn.Module], padding: int) -> None:
    whole, parts = tagger(layer), tagger(layer)
    flatten(parts, padding)
    step, ours = step_of(parts)
    first, last, losses = stepped(step, ours, STEPS)
    other, theirs = step_of(whole)
    _, wanted, _ = stepped(other, theirs, STEPS)
    assert all(torch.equal(last[name], wanted[name]) for name in wanted)
    assert not replay_differs(step, ours, first, last, losses)


def test_a_part_whose_whole_is_gone() -> None:
    model = nn.Linear(4, 3)
    model.weight = nn.Parameter(torch.randn(9, 4).detach()[2:5].detach())
    step, ours = step_of(model)
    before = model.weight.detach().clone()
    step.train_step(ours[3])
    assert not torch.equal(model.weight, before)


def test_parts_that_the_step_does_not_read() -> None:
    model = tagger()
    model.unused = nn.Parameter(torch.ones(5))
    flatten(model)
    step, ours = step_of(model)
    step.train_step(ours[3])
    assert torch.equal(model.unused.detach(), torch.ones(5))


def in_model_twice(model: nn.Module, flat: torch.Tensor) -> object:
    model.register_buffer("flat", flat)
    return None


LOOKS: dict[str, Callable[[nn.Module, torch.Tensor], object]] = {
    "the flat tensor": lambda model, flat: flat,
    "another view of it": lambda model, flat: flat[3:7],
    "a view of a parameter": lambda model, flat: next(model.parameters()).detach(),
    "its storage": lambda model, flat: flat.untyped_storage(),
    "a buffer of the model": in_model_twice,
    "the graph of a loss": lambda model, flat: loss(model, built(model)[3]),
}


@pytest.mark.parametrize("name", LOOKS)
def test_what_else_looks_at_their_memory_refuses_them(name: str) -> None:
    model = tagger(nn.GRU)
    flat = flatten(model)
    kept = LOOKS[name](model, flat)
    del flat
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(
        TraceError, match=r"is a part of a larger tensor, .* drop what else looks at that memory"
    ):
        step_of(model)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    del kept, model
    again = tagger(nn.GRU)
    flatten(again)
    step_of(again)


def test_parts_that_overlap_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    flat = torch.randn(30)
    for layer, start in zip(model, (0, 8), strict=True):
        layer.weight.data = flat[start : start + 16].view(4, 4)
    del flat
    with pytest.raises(TraceError, match="two tensors over the same memory"):
        step_of(model)


def test_an_overlap_with_what_the_step_does_not_read_is_refused() -> None:
    model = nn.Linear(4, 4)
    flat = torch.randn(30)
    model.weight.data = flat[:16].view(4, 4)
    model.unused = nn.Parameter(torch.ones(0))
    model.unused.data = flat[12:20]
    del flat
    with pytest.raises(TraceError, match="part of a larger tensor"):
        step_of(model)


@pytest.mark.parametrize("is_held", [False, True])
def test_a_part_of_a_tensor_that_nobody_holds_is_a_tensor(is_held: bool) -> None:
    """As `offsets = lengths.cumsum(0)[:-1]` is, which keeps what it is a view of."""
    model: Any = nn.Linear(4, 4)
    whole = torch.arange(6.0).cumsum(0)
    model.register_buffer("offsets", whole[1:-1])
    kept = whole if is_held else None
    del whole

    def offset(model: Any, batch: Any) -> torch.Tensor:
        return (model(batch["x"]) + model.offsets).square().mean()

    def build() -> Any:
        sgd, example = torch.optim.SGD(model.parameters(), lr=0.1), {"x": torch.ones(2, 4)}
        return compile_train_step(model, sgd, loss_fn=offset, example=example, device="cpu")

    if is_held:
        with pytest.raises(TraceError, match="part of a larger tensor"):
            build()
        del kept
    batch = {"x": torch.ones(2, 4)}
    expected = offset(model, batch).detach()
    torch.testing.assert_close(build().train_step(batch), expected)
    assert model.offsets.tolist() == [1.0, 3.0, 6.0, 10.0]


def test_checkpoints_and_torch_afterwards(tmp_path: Path) -> None:
    model = tagger()
    flatten(model)
    step, ours = step_of(model)
    step.train_step(ours[3])
    step.save(tmp_path / "checkpoint")
    _, last, _ = stepped(step, ours, 2)
    step.load(tmp_path / "checkpoint")
    _, again, _ = stepped(step, ours, 2)
    assert all(torch.equal(last[name], again[name]) for name in last)
    reference = copy.deepcopy(model)
    assert_near(step.train_step(ours[3]), loss(reference, ours[3]).detach(), 1e-5, "loss")
    assert all(
        one is other for one, other in zip(model.layer._flat_weights, model.layer.parameters(), strict=True)
    )
    assert_near(loss(model, ours[3]).detach(), step.train_step(ours[3]), 1e-5, "loss of torch")


def test_moving_the_model_away_is_noticed() -> None:
    model = tagger()
    flatten(model)
    step, ours = step_of(model)
    step.train_step(ours[3])
    flat = flatten(model)
    with pytest.raises(AicfError, match="was moved after compilation"):
        step.train_step(ours[3])
    del flat
    step.recompile()
    before = model.out.weight.detach().clone()
    step.train_step(ours[3])
    assert not torch.equal(model.out.weight, before)


def test_closing_gives_memory_back() -> None:
    model = tagger()
    flatten(model)
    step, ours = step_of(model)
    step.train_step(ours[3])
    before = copy.deepcopy(model.state_dict())
    step.close()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    flatten(model)
    step_of(model)[0].train_step(ours[3])


@pytest.mark.gpu
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_on_the_gpu_cudnn_lays_them_out(layer: Callable[..., nn.Module]) -> None:
    model = tagger(layer).to("cuda")
    recurrent: Any = model.layer
    storages = {weight.untyped_storage().data_ptr() for weight in recurrent._flat_weights}
    assert len(storages) == 1, "cuDNN has not flattened the weights"
    reference = copy.deepcopy(model)
    ours = built(model, "cuda")
    step = compiled(ours, "cuda")
    first, last, losses = stepped(step, ours, STEPS)
    theirs, optimizer, _, batch = built(reference, "cuda")
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(theirs, batch).backward()
        optimizer.step()
    for name, wanted in theirs.named_parameters():
        assert_near(last[name], wanted.detach(), 1e-3, name)
    assert not replay_differs(step, ours, first, last, losses)
    assert_near(loss(model, batch).detach(), step.train_step(batch), 1e-3, "loss of torch")
    with pytest.raises(AicfError, match="was moved after compilation"):
        recurrent.flatten_parameters()
        step.train_step(batch)
