"""`step.profile` and what comes in between: signals, handlers that return, other threads."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from oracle import same_bits
from test_profile import assert_as_before, batch_of, plain, seen

from aicf_mlir import StateError


class Stopped(Exception):
    """What a handler raises."""


def test_an_interrupt_ends_it_between_two_runs_and_puts_everything_back() -> None:
    step, other = plain("cpu"), plain("cpu")
    for each in (step, other):
        each.train_step(batch_of(1, "cpu"))
    before = seen(step)

    def stop(*_: object) -> None:
        raise Stopped

    previous = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Stopped):
            step.profile(1_000_000, batch_of(2, "cpu"))
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert_as_before(before, step)
    assert same_bits(step.train_step(batch_of(3, "cpu")), other.train_step(batch_of(3, "cpu")))


def test_a_handler_that_returns_lets_it_go_on() -> None:
    """However often signals come: at least one run lies between two."""
    step = plain("cpu")
    step.train_step(batch_of(1, "cpu"))
    before, heard = seen(step), list[int]()
    previous = signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        profile = step.profile(500)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert len(heard) > 1
    assert profile.runs == 500
    assert_as_before(before, step)


def test_it_runs_in_a_thread_and_keeps_others_out() -> None:
    step = plain("cpu")
    step.train_step(batch_of(1, "cpu"))
    before, runs, refused = seen(step), list[int](), list[str]()
    thread = threading.Thread(target=lambda: runs.append(step.profile(3000).runs))
    thread.start()
    deadline = time.monotonic() + 60
    while thread.is_alive() and not refused and time.monotonic() < deadline:
        try:
            step.snapshot()
        except StateError as error:
            refused.append(str(error))
    thread.join(60)
    assert runs == [3000]
    assert refused and "in use by another thread" in refused[0]
    assert_as_before(before, step)
