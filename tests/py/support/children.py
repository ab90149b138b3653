"""Child processes of tests: each has a time limit and takes Ctrl-C, whatever the tests themselves were started with.

`nohup make test &` ignores SIGINT, and children inherit that: one that waits for a Ctrl-C would wait for ever.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

LIMIT_S = 600
"""A hanging child is a failure, not a slow machine: far above what any test needs."""

Command = Sequence[str | Path]
SUPPORT = str(Path(__file__).parent)
"""The folder in which a child finds this module and the others of its kind."""


@contextmanager
def interruptible() -> Generator[None]:
    """Children started meanwhile do not inherit an ignored SIGINT."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Child(subprocess.Popen[Any]):
    """A running child; it is killed at the limit, in seconds, and at the end of its `with` block."""

    def __init__(self, command: Command, limit_s: float | None = None, **options: Any):
        with interruptible():
            super().__init__(command, **options)
        self._watchdog = threading.Timer(limit_s or LIMIT_S, self.kill)
        self._watchdog.daemon = True
        self._watchdog.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._watchdog.cancel()
        if self.poll() is None:
            self.kill()
        super().__exit__(kind, value, traceback)


def run(command: Command, *, check: bool = False, **options: Any) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run` of text, captured unless told otherwise."""
    settings: dict[str, Any] = {"encoding": "utf-8", "timeout": LIMIT_S, "capture_output": True, **options}
    with interruptible():
        return subprocess.run(command, check=check, **settings)


def interrupted_at(pipe: Path, child: Child) -> tuple[int, bytes, bytes]:
    """
    Exit code and output of `child` after Ctrl-C while it reads a named pipe.

    Python looks at a signal between the opening of the pipe and the reading when the reading has ended, so in a while it does.
    """
    writer = writer_of(pipe, child)
    child.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        child.wait(5)
    os.close(writer)
    out, err = child.communicate()
    return child.returncode, out, err


def writer_of(pipe: Path, child: Child) -> int:
    """The writing end of a named pipe, as soon as `child` waits at the other end."""
    while child.poll() is None:
        with suppress(OSError):  # nobody reads yet
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        time.sleep(0.01)
    raise AssertionError(f"the tool left with {child.returncode} before it read its input")


def fork(body: Callable[[], str], started: Callable[[int], object] = lambda child: None) -> str:
    """What `body` returns in a forked child, or the error that it raises there; empty if the child dies.

    `started` is told the child's id as soon as there is one.
    """
    child, answer = begin(body)
    started(child)
    text = answer()
    os.waitpid(child, 0)
    return text


def begin(body: Callable[[], str]) -> tuple[int, Callable[[], str]]:
    """The id of a forked child that runs `body`, and a function that waits for its answer: see `fork`."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.alarm(LIMIT_S)
        try:
            answer = body()
        except BaseException as error:  # noqa: BLE001  # the parent asks what it was
            answer = f"{type(error).__name__}: {error}"
        os.write(send, answer.encode())
        os._exit(0)
    os.close(send)

    def read() -> str:
        with open(receive, "rb") as pipe:  # noqa: PTH123  # a descriptor, no path
            return pipe.read().decode()

    return child, read
