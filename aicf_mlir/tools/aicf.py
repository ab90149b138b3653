"""`aicf info`: what this installation is and runs on, for a report of a fault; `aicf --version`.

Nothing here is needed: what is missing is said, and the rest is shown.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from aicf_mlir import _C, cpu_kernels
from aicf_mlir.tools import machine

DESCRIPTION = """\
Say what this installation of AICF is and what it runs on.

  aicf info
"""


def version_of(distribution: str) -> str:
    """The version of an installed distribution, or that it is missing."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def imported(module: str, distribution: str) -> str:
    """The version of a package that imports; the reason where it is installed but does not."""
    installed = version_of(distribution)
    if installed == "not installed":
        return installed
    try:
        import_module(module)
    except Exception as error:  # noqa: BLE001  # a broken installation raises anything
        return f"{installed}, which does not import: {type(error).__name__}: {error}"
    return installed


def build() -> str:
    """What the compiled part was made for."""
    kernels = f"CPU kernels: {cpu_kernels.chosen()} of {', '.join(cpu_kernels.built())}"
    return f"{kernels}; CUDA kernels: {'yes' if _C.with_cuda else 'no'}"


ROWS: dict[str, Callable[[], str]] = {
    "aicf": lambda: version_of("aicf-mlir"),
    "build": build,
    "python": lambda: f"{platform.python_version()} on {platform.platform()}",
    "torch": lambda: imported("torch", "torch"),
    "xdsl": lambda: imported("xdsl", "xdsl"),
    "numpy": lambda: imported("numpy", "numpy"),
    "processor": machine.processor,
    "blas": machine.blas,
    "driver": machine.driver,
    "devices": lambda: ", ".join(["cpu", *machine.cuda_devices()]),
}
"""What `aicf info` prints, in this order."""


def info() -> str:
    """A line for each of `ROWS`; one that cannot be told says why."""
    lines: list[str] = []
    for name, tell in ROWS.items():
        try:
            value = tell()
        except Exception as error:  # noqa: BLE001  # the report must be whole where anything is broken
            value = f"unknown: {type(error).__name__}: {error}"
        lines.append(f"{name:<10} {value}\n")
    return "".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit code."""
    parser = argparse.ArgumentParser(
        "aicf", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--version", action="version", version=f"aicf {version_of('aicf-mlir')}, xDSL {version_of('xdsl')}"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("info", help="versions, processor, BLAS, CUDA, driver and devices")
    command.set_defaults(run=info)
    options = parser.parse_args(arguments)
    sys.stdout.write(options.run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
