"""The certificate of honest steps, and what happens on the way to it."""

from __future__ import annotations

import dataclasses
import json
import signal
import threading
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from children import interruptible
from models import (
    CONTRACT_OPTIMIZERS,
    OptimizerConfig,
    classification,
    compiled,
    cross_entropy,
    mlp,
    mse,
    regression,
    to_device,
)
from oracle import assert_same_bits
from planted import Gated, Planted, examined
from torch import nn

from aicf_mlir import _C
from aicf_mlir.errors import BindError, StateError
from aicf_mlir.runtime.certificate import CHECKS, Certificate, certify
from aicf_mlir.step.compile import compile_eval_step, compile_train_step

ADAM = CONTRACT_OPTIMIZERS[3]


@pytest.mark.parametrize("optimizer", CONTRACT_OPTIMIZERS, ids=str)
def test_an_honest_step_is_equal_and_stays_as_it_was(optimizer: OptimizerConfig, device: str) -> None:
    setup = compiled(optimizer, device)
    setup.train(2)
    before, settings = setup.values(), deepcopy(setup.optimizer.param_groups[0])
    certificate = setup.step.capture(setup.batch, verify="bitwise", steps=3)
    assert certificate.equal, str(certificate)
    assert_same_bits(setup.values(), before)
    assert {k: v for k, v in setup.optimizer.param_groups[0].items() if k != "params"} == {
        k: v for k, v in settings.items() if k != "params"
    }
    control = compiled(optimizer, device)
    control.train(5)
    setup.step.replay(3)
    assert_same_bits(setup.values(), control.values())


def test_before_the_first_step_opt_state_stays_empty(device: str) -> None:
    setup = compiled(ADAM, device)
    setup.step.warmup(setup.batch)
    assert setup.step.capture(setup.batch, verify="bitwise").equal
    assert not setup.optimizer.state


class Weighted(nn.Module):
    """A number of Python that the step takes from the device."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.alpha = nn.Linear(8, 8), 0.3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.alpha


def test_steps_that_share_memory_and_numbers_of_python(device: str) -> None:
    setup = compiled(ADAM, device, model=Weighted(), meta=["model.alpha"])
    setup.train()
    other = compile_train_step(
        setup.model, setup.optimizer, loss_fn=lambda m, b: 3 * mse(m, b), example=setup.batch, device=device
    )
    other.train_step(setup.batch)
    before = setup.values()
    for step in (setup.step, other):
        certificate = step.capture(setup.batch, verify="bitwise", steps=2)
        assert certificate.equal, str(certificate)
    assert_same_bits(setup.values(), before)
    assert setup.step.meta["model.alpha"] == 0.3


def test_an_evaluation_step_is_equal(device: str) -> None:
    model = mlp(8, 17, 8).to(device)
    batch = to_device(regression(5), device)
    step = compile_eval_step(model, example=batch, device=device)
    step.eval_step(batch)
    certificate = step.capture(batch, verify="bitwise", steps=2)
    assert certificate.equal, str(certificate)


def test_a_step_with_a_status_is_equal(device: str) -> None:
    setup = compiled(ADAM, device, model=mlp(8, 17, 4), batch=classification(), loss_fn=cross_entropy)
    setup.train()
    assert "status" in setup.step.ir("plan")
    certificate = setup.step.capture(setup.batch, verify="bitwise", steps=2)
    assert certificate.equal, str(certificate)


class RowMean(nn.Module):
    """The mean of its rows, weighted."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((2,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.weight * x).sum(0) / len(x)


def test_long_sums_of_doubles_are_equal(device: str) -> None:
    """What NumPy misses of a sum over rows, one behind the other, is no fault of a kernel."""
    model = RowMean().double().to(device)
    batch = {"x": torch.full((400_000, 2), 0.3, dtype=torch.float64, device=device)}
    step = compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        loss_fn=lambda model, batch: model(batch["x"]).sum(),
        example=batch,
        device=device,
    )
    step.warmup(batch)
    certificate = step.capture(batch, verify="bitwise", steps=1)
    assert certificate.equal, str(certificate)


def test_a_batch_whose_updates_are_skipped_proves_nothing() -> None:
    setup = compiled(ADAM, model=mlp(8, 17, 4), batch=classification(), loss_fn=cross_entropy)
    setup.train()
    before = setup.values()
    batch = {**setup.batch, "t": torch.full_like(setup.batch["t"], 7)}
    certificate = setup.step.capture(batch, verify="bitwise")
    assert [finding.check for finding in certificate.findings] == ["reference"]
    assert "a check fails on this batch" in certificate.findings[0].message
    assert_same_bits(setup.values(), before)
    setup.step.replay(inputs=setup.batch)


def test_the_report_prints_and_is_json() -> None:
    setup = compiled(ADAM)
    setup.train()
    certificate = setup.step.capture(setup.batch, verify="bitwise", steps=2)
    text = str(certificate)
    assert text.startswith("step on cpu: equal (9 launches, 2 steps, ")
    assert [line.split()[1] for line in text.splitlines()[1:]] == list(CHECKS)
    found = json.loads(certificate.to_json())
    assert (found["equal"], found["launches"], found["findings"]) == (True, 9, [])


def test_what_capture_cannot_verify() -> None:
    setup = compiled(ADAM)
    setup.train()
    with pytest.raises(BindError, match=r'capture\(verify=…\) takes "bitwise" or None, got \'close\''):
        setup.step.capture(setup.batch, verify="close")  # pyright: ignore[reportCallIssue]
    for steps in (0, True, 1.5):
        with pytest.raises(BindError, match=r"capture\(steps=…\) needs a positive integer"):
            setup.step.capture(setup.batch, verify="bitwise", steps=steps)
    assert setup.step.state == "warmed"


def test_without_a_fault_it_is_equal() -> None:
    for model in (None, Gated()):
        certificate = examined(Planted(model).subject())
        assert certificate.equal, str(certificate)


def test_after_an_exception_the_memory_is_back() -> None:
    subject = Planted().subject()
    subject.executor.reset()
    before = [subject.bytes_of(name) for name in subject.kept]
    with pytest.raises(StateError, match="call capture first"):
        certify(subject, 3)
    assert [subject.bytes_of(name) for name in subject.kept] == before


class Interrupting:
    """An executor during whose n-th run Ctrl-C is pressed."""

    def __init__(self, executor: _C.Executor, n: int):
        self.executor, self.left = executor, n

    def run(self, stream: int = 0) -> None:
        self.left -= 1
        if not self.left:
            signal.raise_signal(signal.SIGINT)
        self.executor.run(stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executor, name)


@pytest.mark.parametrize("n", [1, 4, 7, 8])
def test_ctrl_c_is_obeyed_when_the_memory_is_back(n: int) -> None:
    subject = Planted().subject()
    before = [subject.bytes_of(name) for name in subject.kept]
    with interruptible():
        with pytest.raises(KeyboardInterrupt):
            certify(dataclasses.replace(subject, executor=Interrupting(subject.executor, n)), 3)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert [subject.bytes_of(name) for name in subject.kept] == before


def test_another_thread_may_ask_for_it() -> None:
    subject, results = Planted().subject(), list[Certificate]()
    thread = threading.Thread(target=lambda: results.append(certify(subject, 2)))
    thread.start()
    thread.join(timeout=120)
    assert results[0].equal


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, nn.InstanceNorm2d])
def test_a_gradient_that_is_rounding_alone_does_not_differ(norm: Callable[[int], nn.Module]) -> None:
    """That of a bias in front of a norm: a sum over a row of what rounds its mean."""
    torch.manual_seed(2)
    layers = (
        nn.Conv2d(3, 8, 3, padding=1),
        norm(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        norm(8),
        nn.Tanh(),
    )
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    batch = torch.randn(8, 3, 16, 16) + 1, torch.randint(4, (8,))

    def loss(module: nn.Module, given: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return nn.functional.cross_entropy(module(given[0]), given[1])

    step = compile_train_step(
        model, torch.optim.AdamW(model.parameters()), loss_fn=loss, example=batch, device="cpu"
    )
    step.warmup(batch)
    certificate = step.capture(batch, verify="bitwise")
    assert certificate.equal, str(certificate)
