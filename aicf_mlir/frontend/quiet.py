"""Hides torch.export's messages about itself from the user, but not torch's messages about the user's code."""

from __future__ import annotations

import inspect
import logging
import traceback
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.export import _trace as exporter
from torch.utils._traceback import CapturedTraceback

from aicf_mlir.frontend import source
from aicf_mlir.frontend.source import is_users_file
from aicf_mlir.ir.locations import SourceLocation

CHATTY_LOGGERS = (
    "torch._subclasses.fake_tensor",
    "torch.export._trace",
    "torch.fx.experimental.symbolic_shapes",
)
"""Loggers that report the very errors that torch.export raises."""

_TORCH_NN = Path(str(torch.nn.__file__)).parent


@contextmanager
def quiet() -> Generator[None]:
    """Drop warnings and logs of the tracer; warnings about the user's code follow at the end, at its line."""
    loggers = [logging.getLogger(name) for name in CHATTY_LOGGERS]
    disabled = [logger.disabled for logger in loggers]
    kept: list[tuple[Warning | str, type[Warning], SourceLocation]] = []

    def keep(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
        if is_about_the_users_code():
            kept.append((message, category, source.here() or SourceLocation(filename, lineno)))

    with warnings.catch_warnings(), _unprinted(), _any_path():
        warnings.simplefilter("always")
        warnings.showwarning = keep
        try:
            for logger in loggers:
                logger.disabled = True
            yield
        finally:
            for logger, before in zip(loggers, disabled, strict=True):
                logger.disabled = before
    for message, category, location in kept:
        warnings.warn_explicit(message, category, location.file, location.line)


def _nothing(*_: object, **__: object) -> None:
    """Print nothing."""


@contextmanager
def _unprinted() -> Generator[None]:
    """Suppress the graph of many lines that torch.export prints to stderr when the user's code fails."""
    own: dict[str, Any] = exporter.__dict__
    before = own.get("print", print)
    own["print"] = _nothing
    try:
        yield
    finally:
        own["print"] = before


@contextmanager
def _any_path() -> Generator[None]:
    """Read stacks in Python if a path is no text of this locale, since torch's C++, which reads the stack of each node,
    would fail.
    """
    summary: Any = CapturedTraceback.summary

    def either(captured: CapturedTraceback) -> Any:
        try:
            return summary(captured)
        except (RuntimeError, UnicodeError):
            return traceback.extract_stack(inspect.currentframe())[:-1]

    setattr(CapturedTraceback, "summary", either)  # noqa: B010
    try:
        yield
    finally:
        setattr(CapturedTraceback, "summary", summary)  # noqa: B010


def is_about_the_users_code() -> bool:
    """True if the warning that is being shown was raised by the user's code, or by torch.nn on its behalf."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename in (__file__, warnings.__file__):
        frame = frame.f_back
    raised_in = Path(frame.f_code.co_filename if frame else "")
    is_installed = "site-packages" in raised_in.parts
    return raised_in.is_relative_to(_TORCH_NN) or (is_users_file(str(raised_in)) and not is_installed)
