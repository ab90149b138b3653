"""Several threads compile at once, each a model of its own, while others train."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable

import children
import pytest
import torch
from torch import nn

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import trace
from aicf_mlir.step.compile import compile_train_step

THREADS = 4
LIMIT_S = 300


def run_at_once(tasks: list[Callable[[], None]]) -> list[BaseException]:
    """Run every task in a thread of its own, all from one start; what they raised."""
    start = threading.Barrier(len(tasks), timeout=LIMIT_S)
    raised: list[BaseException] = []

    def run(task: Callable[[], None]) -> None:
        try:
            start.wait()
            task()
        except BaseException as error:  # noqa: BLE001  # handed to the test
            raised.append(error)

    threads = [threading.Thread(target=run, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert not any(thread.is_alive() for thread in threads)
    return raised


def model_of(index: int) -> nn.Sequential:
    torch.manual_seed(index)
    activation = (nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU)[index % 4]
    return nn.Sequential(nn.Linear(4 + index, 8), activation(), nn.Linear(8, 2))


class Job:
    """Compiles and trains one model; a twin is trained by torch."""

    def __init__(self, index: int):
        self.ours = model_of(index)
        self.twin = copy.deepcopy(self.ours)
        self.batch = {"x": torch.randn(3, 4 + index), "t": torch.randn(3, 2)}

    def __call__(self) -> None:
        ours = torch.optim.Adam(self.ours.parameters(), lr=1e-2)
        theirs = torch.optim.Adam(self.twin.parameters(), lr=1e-2)
        step = compile_train_step(self.ours, ours, example=self.batch, device="cpu")
        for _ in range(5):
            loss = step.train_step(self.batch)
            theirs.zero_grad()
            expected = nn.functional.mse_loss(self.twin(self.batch["x"]), self.batch["t"])
            torch.autograd.backward(expected)
            theirs.step()
            torch.testing.assert_close(loss, expected)


def test_threads_compile_at_once_and_train_right() -> None:
    jobs = [Job(index) for index in range(THREADS)]
    assert run_at_once(list(jobs)) == []
    for job in jobs:
        for ours, theirs in zip(job.ours.parameters(), job.twin.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs)


def test_an_error_in_one_thread_does_not_stop_another() -> None:
    def refused() -> None:
        with pytest.raises(TraceError, match="reads the value of a tensor"):
            trace(
                nn.Linear(4, 2), lambda m, b: m(b["x"]).sum() * b["x"].sum().item(), {"x": torch.randn(3, 4)}
            )

    job = Job(0)
    assert run_at_once([refused, job, refused]) == []


FORK = """
import os, signal, threading
from aicf_mlir.frontend.one_at_a_time import one_at_a_time

held, forked = threading.Event(), threading.Event()

@one_at_a_time
def hold():
    held.set()
    forked.wait()

thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(30)
    os._exit(one_at_a_time(lambda: 7)())
forked.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_does_not_wait_for_a_thread_that_it_has_not() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    assert children.run(command, check=True).stdout.strip() == "7"


def test_tuples_that_another_thread_builds_are_left_alone() -> None:
    """Python builds the tuple of an iterator in place, and fails where somebody has got hold of it meanwhile."""
    stop = threading.Event()

    def build() -> None:
        while not stop.is_set():
            tuple(number for number in range(30))

    def compile_some() -> None:
        try:
            for index in range(THREADS):
                model, batch = model_of(index), {"x": torch.randn(3, 4 + index), "t": torch.randn(3, 2)}
                optimizer = torch.optim.Adam(model.parameters())
                compile_train_step(model, optimizer, example=batch, device="cpu")
        finally:
            stop.set()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        assert run_at_once([build, compile_some]) == []
    finally:
        sys.setswitchinterval(before)
