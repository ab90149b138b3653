"""Errors of a trace that the traced code catches: torch raises none there, so its handler would be compiled, which never runs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._pytree import tree_map_only  # pyright: ignore[reportUnknownVariableType]

from aicf_mlir.errors import AicfError, Noted, note, noted
from aicf_mlir.frontend.source import OURS


@contextmanager
def none_caught() -> Generator[None]:
    """Surround code that is traced: raise the first error that no code of ours has caught, in place of its result.

    They are AICF's own, and torch's that it raises for tensors without values only. A handler of the user's (`except
    Exception`, `contextlib.suppress`, a `return` in `finally`) is seen by the outermost frame of the error's traceback.
    """
    with noted() as made, _numbers_noted():
        try:
            yield
        except Exception as error:
            first = _first(made)
            if first is None or first is error:
                raise
            raise first from error
    if first := _first(made):
        raise first


def note_raised(error: Exception, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Note what a torch function has raised; it does not count if real tensors of the same types and shapes raise it too."""
    if not isinstance(error, AicfError):  # those are noted
        note(error, lambda: _is_raised_by_real_tensors(type(error), function, (args, kwargs)))


def _is_raised_by_real_tensors(kind: type[Exception], function: Callable[..., Any], given: Any) -> bool:
    raised = list[Exception]()

    def run() -> None:
        try:
            args, kwargs = tree_map_only(torch.Tensor, _real, given)
            function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  # it is compared
            raised.append(error)

    thread = Thread(target=run)  # where nothing is traced
    thread.start()
    thread.join()
    return any(type(error) is kind for error in raised)


def _real(tensor: torch.Tensor) -> torch.Tensor:
    made = torch.empty_strided(
        tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=tensor.device
    ).zero_()
    return made.requires_grad_(tensor.requires_grad)


@contextmanager
def _numbers_noted() -> Generator[None]:
    """Note what torch raises where the value of a number is not known: numbers are no torch functions."""
    kind: Any = GuardOnDataDependentSymNode
    plain = kind.__init__

    def begin(error: Exception, *args: Any, **kwargs: Any) -> None:
        plain(error, *args, **kwargs)
        note(error)

    kind.__init__ = begin
    try:
        yield
    finally:
        kind.__init__ = plain


def _first(made: Sequence[Noted]) -> Exception | None:
    """Return the first error that was caught, unless torch raises it too."""
    return next((e for e, is_raised in made if _is_caught(e) and not (is_raised and is_raised())), None)


def _is_caught(error: Exception) -> bool:
    """True if the frame that has caught an error is not ours; one that was never raised has none."""
    traceback = error.__traceback__
    return traceback is not None and not traceback.tb_frame.f_code.co_filename.startswith(OURS)
