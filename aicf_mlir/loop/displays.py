"""The displays of progress: a bar of tqdm, one line of a terminal, or lines in a file."""

from __future__ import annotations

import shutil
import time
from collections import deque
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, TextIO

REFRESH = 0.25
"""Seconds between two looks at a terminal."""
LINES, LINE_SECONDS = 8, 10.0
"""The number of lines that a loop of known length writes to a file; seconds between those of another."""
WINDOW = 40
"""The number of refreshes that the rate is measured over: the last ten seconds on a terminal."""


@dataclass
class State:
    """The progress of a loop."""

    name: str
    total: int | None
    done: int = 0
    values: str = ""
    _times: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def note(self) -> None:
        """Take the time, for the rate."""
        self._times.append((time.perf_counter(), self.done))

    @property
    def rate(self) -> float | None:
        """Steps a second; None before there are any."""
        (first, before), (last, after) = self._times[0], self._times[-1]
        return (after - before) / (last - first) if after > before and last > first else None

    def line(self) -> str:
        """`train  step  300/1000  loss 0.2513  812.4 steps/s  0:00:01 to go`."""
        of_all = "" if self.total is None else f"/{self.total}"
        number = f"{self.done:>{len(str(self.total)) if self.total else 1}d}"
        parts = [self.name, f"step {number}{of_all}", self.values]
        if (rate := self.rate) is not None:
            parts.append(f"{rate:.1f} steps/s")
            if self.total is not None and self.total >= self.done:
                parts.append(f"{_clock((self.total - self.done) / rate)} to go")
        return "  ".join(part for part in parts if part)


class Display(Protocol):
    """A way of showing a state."""

    waits: bool
    """True if it waits for the numbers: if it is shown so seldom that this costs nothing."""

    def due(self, state: State) -> bool:
        """True if it is to be shown now; called after each step."""
        ...

    def show(self, state: State) -> None:
        """Show it."""
        ...

    def close(self, state: State, finished: bool) -> None:
        """Leave the last shown text on a line of its own; `finished`: the loop has come to its end."""
        ...


class _Timed:
    """A timer for the next display."""

    waits = False

    def __init__(self) -> None:
        self._next = time.perf_counter() + REFRESH

    def due(self, state: State) -> bool:
        now = time.perf_counter()
        if now < self._next:
            return False
        self._next = now + REFRESH
        return True


class Bar(_Timed):
    """A bar of tqdm."""

    def __init__(self, stream: TextIO, state: State, tqdm: Any):
        super().__init__()
        self._bar = tqdm(
            total=state.total,
            desc=state.name or None,
            unit="step",
            file=stream,
            dynamic_ncols=True,
            mininterval=0,
        )

    def show(self, state: State) -> None:
        self._bar.set_postfix_str(state.values, refresh=False)
        self._bar.update(state.done - self._bar.n)

    def close(self, state: State, finished: bool) -> None:
        self.show(state)
        self._bar.close()


class Line(_Timed):
    """One line that is rewritten again and again."""

    def __init__(self, stream: TextIO):
        super().__init__()
        self._stream = stream
        self._shown = 0

    def show(self, state: State) -> None:
        text = state.line()[: shutil.get_terminal_size().columns - 1]
        self._stream.write(f"\r{text:{self._shown}}")
        self._stream.flush()
        self._shown = len(text)

    def close(self, state: State, finished: bool) -> None:
        self.show(state)
        self._stream.write("\n")
        self._stream.flush()


class Lines:
    """Some lines, one below the other."""

    waits = True

    def __init__(self, stream: TextIO, state: State):
        self._stream = stream
        self._every = max(1, state.total // LINES) if state.total else None
        self._next = time.perf_counter() + LINE_SECONDS
        self._shown = -1

    def due(self, state: State) -> bool:
        if self._every is not None:
            return state.done % self._every == 0
        return time.perf_counter() >= self._next

    def show(self, state: State) -> None:
        self._next = time.perf_counter() + LINE_SECONDS
        self._shown = state.done
        self._stream.write(f"{state.line()}\n")
        self._stream.flush()

    def close(self, state: State, finished: bool) -> None:
        if finished and self._shown != state.done:
            self.show(state)


def display(stream: TextIO | None, state: State, show: bool | None) -> Display | None:
    """The display of `state` on `stream`; None if it is not shown: `stream` is no terminal and `show` does not ask for it."""
    if stream is None or show is False or stream.closed:
        return None
    if not stream.isatty():
        return Lines(stream, state) if show else None
    try:
        return Bar(stream, state, import_module("tqdm").tqdm)
    except ImportError:
        return Line(stream)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
