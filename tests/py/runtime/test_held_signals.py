"""Signals that wait: to the end of a block, or so long, or until somebody insists."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from models import mlp, mse, regression

from aicf_mlir import compile_train_step
from aicf_mlir.frontend import one_at_a_time
from aicf_mlir.host.interrupts import held


@contextmanager
def interrupted_after(seconds: float) -> Generator[None]:
    """SIGALRM raises KeyboardInterrupt, and comes once."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_signal_waits_for_the_end() -> None:
    ends: list[str] = []
    with pytest.raises(KeyboardInterrupt), interrupted_after(10):
        with held() as waiting:
            signal.raise_signal(signal.SIGALRM)
            signal.raise_signal(signal.SIGALRM)
            assert len(waiting) == 2
            ends.append("block")
        ends.append("behind")
    assert ends == ["block"]


def test_whoever_insists_is_heard_at_once() -> None:
    ends: list[str] = []
    before = {*threading.enumerate()}
    with pytest.raises(KeyboardInterrupt), interrupted_after(10), held(at_most=100):
        signal.raise_signal(signal.SIGALRM)
        ends.append("first")
        signal.raise_signal(signal.SIGALRM)
        ends.append("second")
    assert ends == ["first"]
    assert not [t for t in {*threading.enumerate()} - before if isinstance(t, threading.Timer)]


def test_no_signal_waits_longer() -> None:
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupted_after(0.01), held(at_most=0.1):
        while time.monotonic() < began + 60:
            time.sleep(0.001)
    assert time.monotonic() < began + 30


def test_nothing_comes_behind_the_block() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: came.append(number))
    try:
        for wait in (0.0, 0.01, 0.02):
            with held(at_most=0.01):
                signal.raise_signal(signal.SIGALRM)
                time.sleep(wait)
        time.sleep(0.05)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(came) == 3


def test_another_thread_holds_nothing() -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(("begin", *held(at_most=1).__enter__())))
    thread.start()
    thread.join()
    assert found == ["begin"]


def test_a_loss_that_never_ends_can_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_at_a_time, "PATIENCE", 0.2)
    model = mlp(8, 17, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def endless(model: Any, batch: Any) -> torch.Tensor:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            pass
        return mse(model, batch)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupted_after(0.1):
        compile_train_step(model, optimizer, loss_fn=endless, example=regression(), device="cpu")
    assert time.monotonic() < began + 30
    step = compile_train_step(model, optimizer, loss_fn=mse, example=regression(), device="cpu")
    step.train_step(regression())
