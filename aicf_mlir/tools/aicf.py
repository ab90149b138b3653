"""`aicf info`: the contents and the environment of this installation, for a report of a fault; `aicf kernels`; `aicf --version`.

None of the items of `aicf info` is required: missing ones are reported, and the rest is shown. Only `aicf kernels` imports xDSL.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from aicf_mlir import _C
from aicf_mlir.codegen import nvrtc
from aicf_mlir.errors import AicfError
from aicf_mlir.host.tool_process import INTERRUPTED, interruptible
from aicf_mlir.machine import cpu_kernels, environment, hardware

DESCRIPTION = """\
Say what this installation of AICF is, what it runs on, and which kernels it has.

  aicf info
  aicf kernels                            every kernel op and its kernels
  aicf kernels gemm_epilogue --device cpu
"""


def version_of(distribution: str) -> str:
    """The version of an installed distribution, or that it is missing."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def imported(module: str, distribution: str) -> str:
    """The version of a package that imports; the reason if it is installed but does not."""
    installed = version_of(distribution)
    if installed == "not installed":
        return installed
    try:
        import_module(module)
    except Exception as error:  # noqa: BLE001  # a broken installation raises anything
        return f"{installed}, which does not import: {type(error).__name__}: {error}"
    return installed


def build() -> str:
    """The targets of the compiled part."""
    kernels = f"CPU kernels: {cpu_kernels.chosen()} of {', '.join(cpu_kernels.built())}"
    return f"{kernels}; CUDA kernels: {'yes' if _C.with_cuda else 'no'}"


def nvrtc_library() -> str:
    """The compiler of generated kernels for a GPU."""
    return nvrtc.toolchain() if nvrtc.available() else "none: generated CUDA kernels need nvidia-cuda-nvrtc"


def library(name: str) -> str:
    """The version of a library for a GPU in addition to our own kernels, which do not need it."""
    versions = {row: version for row, _, version in _C.libraries()}
    return str(versions[name] or "none, or not asked for: a GPU runs kernels of AICF in its place")


ROWS: dict[str, Callable[[], str]] = {
    "aicf": lambda: version_of("aicf-mlir"),
    "build": build,
    "python": lambda: f"{platform.python_version()} on {platform.platform()}",
    "torch": lambda: imported("torch", "torch"),
    "xdsl": lambda: imported("xdsl", "xdsl"),
    "numpy": lambda: imported("numpy", "numpy"),
    "processor": hardware.processor,
    "blas": hardware.blas,
    "nvrtc": nvrtc_library,
    **{name: partial(library, name) for name, *_ in _C.libraries()},
    "driver": hardware.driver,
    "devices": lambda: ", ".join(["cpu", *hardware.cuda_devices()]),
    **{name: partial(environment.described, name) for name in environment.VARIABLES},
}
"""What `aicf info` prints, in this order: the installation, then the variables of the environment."""


WIDTH = max(map(len, ROWS))


def info(options: argparse.Namespace | None = None) -> str:
    """A line for each of `ROWS`; an unavailable one has the reason."""
    lines: list[str] = []
    for name, tell in ROWS.items():
        try:
            value = tell()
        except Exception as error:  # noqa: BLE001  # the report must be whole where anything is broken
            value = f"unknown: {type(error).__name__}: {error}"
        lines.append(f"{name:<{WIDTH}} {value}\n")
    return "".join(lines)


def kernels(options: argparse.Namespace) -> str:
    """The list that `aicf kernels` prints; raises BindError for an op that is not there."""
    from aicf_mlir.tools.kernels import kernel_list, to_json, to_table

    ops = kernel_list(options.op, options.device)
    return f"{to_json(ops) if options.json else to_table(ops)}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit code."""
    parser = argparse.ArgumentParser(
        "aicf", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--version", action="version", version=f"aicf {version_of('aicf-mlir')}, xDSL {version_of('xdsl')}"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "info", help="versions, processor, BLAS, CUDA, driver, devices and environment variables"
    )
    command.set_defaults(run=info)
    command = commands.add_parser(
        "kernels", help="the kernel ops, and the kernels of each in order of preference"
    )
    command.add_argument("op", nargs="?", metavar="OP", help="one op, such as gemm_epilogue (default: all)")
    command.add_argument("--device", choices=("cpu", "cuda"), help="only the kernels of this device")
    command.add_argument("--json", action="store_true", help="for programs, in a versioned format")
    command.set_defaults(run=kernels)
    options = parser.parse_args(arguments)
    try:
        with interruptible():
            return print_of(options)
    except KeyboardInterrupt:
        return INTERRUPTED


def print_of(options: argparse.Namespace) -> int:
    """Print the output of a command and return the exit code."""
    try:
        sys.stdout.write(options.run(options))
        sys.stdout.flush()
    except AicfError as error:
        sys.stderr.write(f"aicf: error: {error}\n")
        return 1
    except BrokenPipeError:  # the reader has gone: print nothing, and keep Python from flushing at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
