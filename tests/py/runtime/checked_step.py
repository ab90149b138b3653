"""A compiled step of a small classifier, with everything that it may change in view: for the tests of its checks."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.nn import functional

from aicf_mlir import CompiledTrainStep, DataError, compile_train_step

ROWS, FEATURES, CLASSES = 6, 8, 5
IGNORED = -100

Batch = dict[str, torch.Tensor]

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
}


def loss_fn(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    return functional.cross_entropy(model(batch["x"]), batch["label"])


def squared(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    y = model(batch["x"] - batch["x"].mean())
    return (y * y).mean()


def make_model(dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    torch.manual_seed(1)
    layers = [torch.nn.Linear(FEATURES, 7), torch.nn.Tanh(), torch.nn.Linear(7, CLASSES)]
    return torch.nn.Sequential(*layers).to(dtype)


def make_batch(seed: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, FEATURES, generator=generator).to(dtype)
    label = torch.randint(CLASSES, (ROWS,), generator=generator)
    return {"x": x.to(device), "label": label.to(device)}


def changed(batch: Batch, key: str, at: tuple[int, ...], value: float) -> Batch:
    """`batch` with one element replaced."""
    tensor = batch[key].clone()
    tensor[at] = value
    return {**batch, key: tensor}


class Side:
    """A compiled step on a device, its model and optimizer, and everything that a step may change."""

    def __init__(
        self,
        optimizer: str,
        device: str,
        dtype: torch.dtype = torch.float32,
        model: torch.nn.Module | None = None,
        example: Batch | None = None,
        loss: Callable[[torch.nn.Module, Batch], torch.Tensor] = loss_fn,
        **options: Any,
    ):
        self.model = (make_model(dtype) if model is None else model).to(device)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        batch = make_batch(0, device, dtype) if example is None else example
        self.step: CompiledTrainStep = compile_train_step(
            self.model, self.optimizer, example=batch, device=device, loss_fn=loss, **options
        )

    def bytes(self) -> dict[str, bytes]:
        """Parameters, optimizer state, counters, host scalars and updated buffers, bit for bit."""
        snapshot = self.step.snapshot()
        return {f"{p.arena} {p.offset}": snapshot.memory.read(p.at, p.nbytes) for p in snapshot.pieces}

    @contextmanager
    def refused(self, error: type[DataError], *texts: str) -> Generator[None]:
        """What runs inside raises `error` with these texts, and nothing has changed."""
        before, state = self.bytes(), self.state()
        with pytest.raises(error) as raised:
            yield
        for text in texts:
            assert text in str(raised.value), f"{text!r} is not in {raised.value}"
        assert self.bytes() == before
        assert self.state() == state

    def state(self) -> list[dict[str, list[float]]]:
        """What `optimizer.state` holds, as torch users see it."""
        return [
            {key: torch.as_tensor(value).flatten().tolist() for key, value in state.items()}
            for state in self.optimizer.state.values()
        ]

    def train(self, batch: Batch) -> None:
        """One step that must be noticed at once, on every device."""
        self.step.train_step(batch)
        self.step.synchronize()


def parameters(model: torch.nn.Module) -> list[bytes]:
    return [p.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() for p in model.parameters()]
