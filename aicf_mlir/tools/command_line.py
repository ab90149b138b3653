"""Common parts of the tools' command lines: pass flags, exit codes, and no traceback for bad input."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from difflib import get_close_matches
from hashlib import sha256
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn, TextIO

from aicf_mlir.errors import AicfError, SettingError
from aicf_mlir.host.tool_process import INTERRUPTED, USAGE, interruptible
from aicf_mlir.ir.diagnostics import Diagnostic, LocatedError, Position, Source
from aicf_mlir.ir.renamed import now_called
from aicf_mlir.machine.atomic_file import write_file

OK, FAILED, INTERNAL = 0, 1, 70
"""Exit codes in addition to those of `tool_process`: done, input refused or results that differ, a bug in AICF."""


class ToolParser(argparse.ArgumentParser):
    """An argument parser that suggests the nearest option or pass for one that does not exist."""

    def __init__(self, *args: Any, passes: Collection[str] = (), **kwargs: Any) -> None:
        super().__init__(
            *args, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **kwargs
        )
        self._passes = passes

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The parsed arguments; pass flags `--PASS[=OPTIONS]` become `-p`, in the order typed."""
        use_utf8()
        options, unknown = self.parse_known_args(list(expand_pass_flags(arguments, self._passes)))
        if unknown:
            self.error(self._explain(unknown[0], getattr(options, "input", "")))
        return options

    def has_option(self, name: str) -> bool:
        """True if `--name` is an option."""
        return name in self._option_string_actions

    def error(self, message: str) -> NoReturn:
        """Print one line on standard error and exit with code 2."""
        self.exit(USAGE, f"{self.prog}: error: {message}\n")

    def _explain(self, argument: str, file: str) -> str:
        name = argument.split("=")[0]
        if not name.startswith("-"):
            loose = [text for text in (file, argument) if "=" in text]
            hint = (
                "pass options follow '=': --select-kernels=target=sm_90"
                if loose
                else "one input file is read"
            )
            return f"unexpected argument '{(loose or [argument])[0]}'; {hint}"
        known = [*self._option_string_actions, *(f"--{name}" for name in self._passes)]
        if (advice := now_called(name)) is not None:
            return f"unknown option '{name}'; {advice}"
        near = get_close_matches(name, known, 3)
        return f"unknown option '{name}'" + (
            f"; did you mean {' or '.join(near)}?" if near else "; see --help"
        )


class VersionAction(argparse.Action):
    """Print the versions of AICF and xDSL, looked up only now, and leave."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, nargs=0, help="print the versions of AICF and xDSL", **kwargs)

    def __call__(self, parser: argparse.ArgumentParser, *args: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            own = version("aicf-mlir")
        except PackageNotFoundError:
            own = "(not installed)"
        sys.stdout.write(f"{parser.prog} {own}, xDSL {version('xdsl')}\n")
        parser.exit(OK)


def use_utf8() -> None:
    """Write UTF-8 in any locale: names and messages hold any character."""
    for stream, errors in ((sys.stdout, "strict"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(encoding="utf-8", errors=errors)


def expand_pass_flags(arguments: Sequence[str], passes: Collection[str]) -> Iterator[str]:
    """`--lower` as `-p lower`, and `--select-kernels=target=sm_90` as `-p select-kernels{target=sm_90}`."""
    for argument in arguments:
        name, equals, options = argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or name not in passes:
            yield argument
            continue
        options = options.removeprefix("{").removesuffix("}")
        yield "-p"
        yield f"{name}{{{options}}}" if equals else name


def guarded(
    tool: Callable[[], int],
    name: str,
    arguments: Sequence[str] | None,
    *,
    debug: bool = False,
    source: Callable[[], Source | None] = lambda: None,
) -> int:
    """Run a tool; every exception becomes a line and an exit code, and with `debug` a traceback too.

    `arguments` are those of the command line (None for those of the process), `source` the text that the tool has read: for the
    reproducer of an unexpected exception.
    """
    try:
        with interruptible():
            return _reported(tool, name, arguments, debug, source)
    except KeyboardInterrupt:
        return INTERRUPTED


def _reported(
    tool: Callable[[], int],
    name: str,
    arguments: Sequence[str] | None,
    debug: bool,
    source: Callable[[], Source | None],
) -> int:
    try:
        return tool()
    except BrokenPipeError:  # the reader has gone: print nothing
        drop_unwritten()
        return FAILED
    except SettingError as error:
        sys.stderr.write(f"{name}: error: {error}\n")
        return USAGE
    except LocatedError as error:
        sys.stderr.write(str(error.diagnostic))
    except OSError as error:
        reason = ": ".join(str(part) for part in (error.filename, error.strerror) if part)
        sys.stderr.write(f"{name}: error: {reason or error}\n")
        drop_unwritten()
    except (AicfError, MemoryError) as error:
        sys.stderr.write(f"{name}: error: {error or type(error).__name__}\n")
    except Exception as error:  # noqa: BLE001 - a bug of ours: reported with its reproducer, exit code 70
        command = [name, *(sys.argv[1:] if arguments is None else arguments)]
        sys.stderr.write(str(internal_error(error, Position(name), command, source(), debug=debug)))
        return INTERNAL
    return FAILED


def drop_unwritten() -> None:
    """Keep Python from retrying at exit the output that standard output has not taken: it would complain, and exit with 120."""
    standard: TextIO | None = sys.stdout  # None where the caller closed it
    if standard is None:
        return
    try:
        standard.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), standard.fileno())


def internal_error(
    error: BaseException,
    place: Position,
    command: Sequence[str],
    source: Source | None,
    *,
    debug: bool,
    owner: str = "AICF",
) -> Diagnostic:
    """The message for an exception that no input should cause; it names the file that reproduces it.

    `owner` tells in whose code it happened.
    """
    if debug:
        traceback.print_exception(error)
    texts = [note for note in getattr(error, "__notes__", ()) if "\n" not in note]
    if (path := write_reproducer(error, command, source)) is not None:
        texts.append(f"command, traceback and input are in {path}: please send it with a report")
    message = (
        f"internal error, {type(error).__name__}: {error}"
        f" (a bug in {owner}: --debug shows the Python traceback)"
    )
    return Diagnostic("error", message, place, tuple(Diagnostic("note", text, place) for text in texts))


def write_reproducer(error: BaseException, command: Sequence[str], source: Source | None) -> str | None:
    """Write command line, traceback and input to a file that is itself an input; None if that fails."""
    trace = "".join(traceback.format_exception(error))
    lines = [f"command: {shlex.join(command)}", *trace.splitlines()]
    text = "".join(f"// {line}\n" for line in lines) + ("" if source is None else source.text)
    data = text.encode("utf-8", "backslashreplace")
    path = Path(tempfile.gettempdir()) / f"{command[0]}-{sha256(data).hexdigest()[:12]}.mlir"
    try:
        write_file(path, data)
    except OSError:  # the report of the bug matters more than its file
        return None
    return str(path)
