"""Tools in this process, as a shell sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest


def called(
    main: Callable[[Sequence[str]], int], arguments: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `main`, which shows a traceback to who debugs only."""
    try:
        code = main(arguments)
    except SystemExit as left:
        code = int(left.code or 0)
    captured = capsys.readouterr()
    assert "--debug" in arguments or "Traceback" not in captured.err
    return code, captured.out, captured.err
