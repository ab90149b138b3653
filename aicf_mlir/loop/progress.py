"""Progress of a training loop: how far it is, steps a second, the loss, the time that is left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar, cast

from aicf_mlir.errors import BindError, StateError
from aicf_mlir.loop.displays import Display, State, display
from aicf_mlir.loop.readings import Readings, expect_showable
from aicf_mlir.step.built_step import BuiltStep
from aicf_mlir.step.compile_body import LoopFunction

T = TypeVar("T")

Step = BuiltStep | LoopFunction
"""A step with a loss to show."""


class Progress(Generic[T]):
    """The result of `progress`: gives the batches one by one, and shows the progress. Each `for` over it starts from the
    beginning.
    """

    def __init__(
        self, batches: Iterable[T], step: Step | None, total: int | None, name: str, show: bool | None
    ):
        self._batches = batches
        self._step = step
        self._total = total
        self._name = name
        self._show = show
        self._values: dict[str, object] = {}
        self._readings: Readings | None = None

    def set_postfix(self, **values: object) -> None:
        """Show these after the rest, as tqdm does: numbers, text, tensors of one element.

        They are kept until they are shown, and read then: a tensor costs nothing here. BindError for one of several elements.
        """
        self._values = {name: expect_showable(name, value) for name, value in values.items()}

    def __iter__(self) -> Iterator[T]:
        state = State(self._name, self._total)
        shown = display(sys.stderr, state, self._show)
        if shown is None:
            yield from self._batches
            return
        self._readings, finished = None, False
        state.note()
        try:
            for batch in self._batches:
                yield batch
                state.done += 1
                if shown.due(state):
                    self._refresh(state, shown)
            finished = True
        finally:
            self._close(state, shown, finished)

    def _refresh(self, state: State, shown: Display) -> None:
        """Show the known values, and begin to read the next ones."""
        state.note()
        if self._readings is None or shown.waits:
            self._readings = Readings(self._latest())
        if shown.waits or self._readings.are_known:
            state.values, self._readings = self._readings.text(), None
        _write(lambda: shown.show(state))

    def _close(self, state: State, shown: Display, finished: bool) -> None:
        state.note()
        self._readings = None
        try:
            if finished:  # after an error no device is read: it may be lost
                state.values = Readings(self._latest()).text()
        finally:
            _write(lambda: shown.close(state, finished))

    def _latest(self) -> dict[str, object]:
        if self._step is None or "loss" in self._values:
            return self._values
        try:
            return {"loss": self._step.loss, **self._values}
        except StateError:  # no step has run yet, it is closed, or another thread is inside
            return self._values


def progress(
    batches: Iterable[T],
    step: Step | None = None,
    *,
    total: int | None = None,
    name: str = "",
    show: bool | None = None,
) -> Progress[T]:
    """The batches one by one, with a line on stderr that shows the progress: steps, steps a second, time left, the loss of
    `step`.

        for batch in aicf_mlir.progress(loader, step):
            step.replay(inputs=batch)

    Each turn of the loop counts as one step. `total` is their number if `batches` has no length; without either no time is shown.
    `set_postfix` of the result adds other numbers, as that of tqdm. On a terminal it is a bar of tqdm, or one line of text if
    tqdm is not installed. If stderr is no terminal nothing is written, or with `show=True` eight lines in all (without a total,
    one every ten seconds); with `show=False` nothing is.

    It does not delay the loop: four times a second it shows the values that are computed by then. It waits for the device only
    for the last numbers, and for those in whole lines.

    Raises BindError for batches that cannot be iterated, a total that is no number of steps and a step that was not compiled.
    """
    if not isinstance(cast(object, batches), Iterable) and not hasattr(batches, "__getitem__"):
        raise BindError(f"progress needs batches to go through, got {type(batches).__name__}")
    if step is not None and not isinstance(cast(object, step), Step):
        raise BindError(
            f"progress takes the loss from a compiled step or loop body, got {type(step).__name__}; pass model.compiled_step,"
            " or show a loss by set_postfix(loss=…)"
        )
    if total is not None and (type(total) is not int or total < 0):
        raise BindError(f"progress needs a whole number of steps as total, got {total!r}")
    return Progress(batches, step, _length(batches) if total is None else total, name, show)


def _length(batches: object) -> int | None:
    try:
        return len(batches)  # pyright: ignore[reportArgumentType]
    except (TypeError, NotImplementedError):  # a generator; a loader of a stream
        return None


def _write(show: Callable[[], None]) -> None:
    """Show, if the stream still takes it: a terminal that has gone does not end a training."""
    with suppress(OSError, ValueError):
        show()
