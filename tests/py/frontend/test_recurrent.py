"""LSTM, GRU and RNN, trained beside torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_torch import assert_trains, compiled
from torch import nn
from torch._decomp import decompositions

from aicf_mlir import TraceError, compile_train_step

BATCH, LENGTH, SIZE, HIDDEN = 3, 5, 4, 6

KINDS: dict[str, Callable[..., nn.Module]] = {
    "LSTM": nn.LSTM,
    "GRU": nn.GRU,
    "RNN": nn.RNN,
    "RNN relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
}

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch first": {"batch_first": True},
    "two layers": {"num_layers": 2, "batch_first": True},
    "both directions": {"bidirectional": True, "num_layers": 2},
    "no bias": {"bias": False, "batch_first": True},
}
PROJECTED: dict[str, dict[str, Any]] = {
    "plain": {"batch_first": True},
    "both directions": {"bidirectional": True, "num_layers": 2, "batch_first": True},
    "no bias": {"bias": False, "num_layers": 2, "batch_first": True},
}


class Recurrent(nn.Module):
    """A recurrent layer, from zeros or with `start` from learned states."""

    def __init__(self, layer: Any, start: bool = False):
        super().__init__()
        self.layer, self.lstm = layer, isinstance(layer, nn.LSTM)
        count = layer.num_layers * (2 if layer.bidirectional else 1)
        self.start = nn.Parameter(torch.randn(2, count, BATCH, HIDDEN)) if start else None

    def forward(self, batch: Any) -> Any:
        if self.start is None:
            y, state = self.layer(batch["x"])
        else:
            y, state = self.layer(batch["x"], (self.start[0], self.start[1]) if self.lstm else self.start[0])
        return y, *(state if self.lstm else (state,))


def loss(model: Any, batch: Any) -> torch.Tensor:
    """Of the outputs and the last states."""
    values = [value.flatten() for value in model(batch)]
    y = torch.cat(values)
    return (y * torch.linspace(0.5, 1.5, y.numel())).square().mean()


def batch(first: bool) -> dict[str, torch.Tensor]:
    """A sequence of either order."""
    generator = torch.Generator().manual_seed(2)
    shape = (BATCH, LENGTH, SIZE) if first else (LENGTH, BATCH, SIZE)
    return {"x": torch.randn(shape, generator=generator)}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_trains_as_torch(kind: str, options: str) -> None:
    torch.manual_seed(1)
    given = OPTIONS[options]
    layer = KINDS[kind](SIZE, HIDDEN, **given)
    assert_trains(Recurrent(layer), loss, batch(given.get("batch_first", False)))


@pytest.mark.parametrize("kind", KINDS)
def test_initial_states_are_trained(kind: str) -> None:
    torch.manual_seed(1)
    layer = KINDS[kind](SIZE, HIDDEN, num_layers=2, batch_first=True)
    assert_trains(Recurrent(layer, start=True), loss, batch(first=True))


@pytest.mark.parametrize("options", PROJECTED)
def test_projected_states_train_as_torch(options: str) -> None:
    torch.manual_seed(1)
    layer = nn.LSTM(SIZE, HIDDEN, proj_size=2, **PROJECTED[options])
    assert_trains(Recurrent(layer), loss, batch(first=True))


class Cell(nn.Module):
    """A cell in a loop of the user's."""

    def __init__(self, cell: nn.Module):
        super().__init__()
        self.cell = cell

    def forward(self, batch: Any) -> Any:
        state: Any = None
        for x in batch["x"].unbind(0):
            state = self.cell(x, state)
        return state if isinstance(state, tuple) else (state,)


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells_train_as_torch(cell: Any) -> None:
    torch.manual_seed(1)
    assert_trains(Cell(cell(SIZE, HIDDEN)), loss, batch(first=False))


def test_one_sequence_without_a_batch() -> None:
    torch.manual_seed(1)
    assert_trains(Recurrent(nn.GRU(SIZE, HIDDEN)), loss, {"x": torch.randn(LENGTH, SIZE)})


def packed(layer: Any, x: Any) -> Any:
    """Through a packed sequence."""
    lengths = torch.tensor([5, 4, 2])
    return layer(nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True))[0].data


class Packed(Recurrent):
    """Its input is packed."""

    def forward(self, batch: Any) -> Any:
        return (packed(self.layer, batch["x"]),)


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "packed": (lambda: Packed(nn.GRU(SIZE, HIDDEN, batch_first=True)), "a packed sequence .pad it"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_by_name(name: str) -> None:
    make, text = REFUSED[name]
    with pytest.raises(TraceError, match=text):
        compiled(make(), loss, batch(first=True))


def test_a_shape_that_torch_traces_wrongly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch 2.11 does it with the last states of an LSTM: what follows would be another computation."""
    original = decompositions.one_layer_lstm

    def wrong(*args: Any, **options: Any) -> Any:
        out, states = original(*args, **options)
        return out, tuple(state.unsqueeze(0) for state in states)

    monkeypatch.setattr(decompositions, "one_layer_lstm", wrong)
    model = nn.LSTM(4, 6, batch_first=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = {"x": torch.randn(2, 5, 4)}
    message = r"traces it with the shape \[1, 1, 2, 6\], and it has \[1, 2, 6\]: a fault of its tracing"
    with pytest.raises(TraceError, match=message):
        compile_train_step(
            model, optimizer, device="cpu", example=batch, loss_fn=lambda m, b: m(b["x"])[1][0][-1].sum()
        )
