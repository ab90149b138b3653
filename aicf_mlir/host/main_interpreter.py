"""Imported first. AICF is refused in a sub-interpreter: the compiled module has one state a process and would wait for ever."""

from __future__ import annotations

from importlib import import_module


def expect_main() -> None:
    """Raise ImportError in any interpreter but the main one, if this Python can tell."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # the latter before Python 3.13
        try:
            interpreters = import_module(name)
        except ImportError:
            continue
        if interpreters.get_current() != interpreters.get_main():
            raise ImportError(
                "aicf_mlir was imported in a sub-interpreter; as NumPy and torch, it runs in the main interpreter of a process "
                "only: use threads, or processes of multiprocessing"
            )


expect_main()
