"""The start of a tool: a process that was started as a tool shows no traceback from its imports either.

The commands, like `python -m aicf_mlir.tools.aicf_opt`, import this package first, and xDSL, NumPy and torch, which take a
second, before `main` of the tool can catch anything. So the package checks here at its own import if the import is that of a
tool. In any other process nothing is changed. Little is imported here: until then Ctrl-C is that of Python.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

USAGE, INTERRUPTED = 2, 130
"""Exit codes: wrong command line or environment, Ctrl-C."""
TOOLS = os.path.join(os.path.dirname(__file__), os.pardir, "tools")  # noqa: PTH118, PTH120  # without the time that pathlib takes


def tool() -> str | None:
    """The tool that this process was started as, such as "aicf-opt", while it imports the package; None for any other program."""
    given: list[str] = getattr(sys, "argv", [])  # an embedded Python may have none
    if not given:
        return None
    if given[0] == "-m":  # until the module is found; the arguments of the module follow it
        package, _, name = sys.orig_argv[-len(given)].removeprefix("-m").rpartition(".")
        name = name if package == "aicf_mlir.tools" else ""
    else:
        name = os.path.basename(given[0]).replace("-", "_")  # noqa: PTH119
    is_tool = name.partition("_")[0] == "aicf" and os.path.isfile(f"{TOOLS}/{name}.py")  # noqa: PTH113
    return name.replace("_", "-") if is_tool else None


def begin() -> None:
    """Have Ctrl-C end the process of a tool at once from now on, without a message; `interruptible` is for code that must
    clean up. The garbage collector has little to do.
    """
    if tool() is not None:
        gc.set_threshold(100_000)  # imports make many objects and no garbage
        atexit.register(gc.freeze)  # nothing is searched for garbage in a process that ends
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and tool() is not None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def refuse(error: Exception) -> None:
    """End the process of a tool with one line that contains `error`; in any other process the caller handles it."""
    if (name := tool()) is not None:
        sys.stderr.write(f"{name}: error: {error}\n")
        raise SystemExit(USAGE)


@contextmanager
def interruptible() -> Generator[None]:
    """Have Ctrl-C raise KeyboardInterrupt in the block, and after it end a tool at once again."""
    if signal.getsignal(signal.SIGINT) is not _leave:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    """Exit without an exception: an import may catch it, as torch does around its import of NumPy, and fail in another way
    later.
    """
    os._exit(INTERRUPTED)
