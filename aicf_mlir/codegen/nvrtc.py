"""CUDA C++ text to a cubin by NVRTC, which is found at run time; neither a GPU nor a driver nor CUDA's headers are needed."""

from __future__ import annotations

import ctypes
import importlib.util
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from aicf_mlir.errors import KernelError

SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
FOLDERS = ("cu13/lib", "cuda_nvrtc/lib")
"""The library's folders in the package `nvidia`, as installed by the wheels that torch for CUDA requires."""
OPTIONS = ("-std=c++17", "--fmad=false", "--ptxas-options=-v")
"""Options without fast math and without sums contracted with products. A value that two kernels compute alike has the same bits
in both, independent of their other values. Products write their fused multiply-adds explicitly. The assembler's report goes to
the log.
"""
CAREFUL = "--ptxas-options=-O1"
"""The option for kernels that spill: ptxas 13.0 has been seen to give two values that live at once one place in memory, with
registers to spare.
"""
SINCE = {"--no-cache": (12, 9)}
"""The first versions that know these options. NVRTC keeps a cache of its own: code from there has no report, and our cache
verifies its files.
"""

_P = ctypes.c_void_p
_TEXTS = ctypes.POINTER(ctypes.c_char_p)


OF_ONE_CAPABILITY = {"sm_90": ("sm_90a", re.compile(r"\bwgmma\."))}
"""For each target, the name of the architecture with instructions that no later one has, and a pattern for these instructions."""


class CompileError(KernelError):
    """NVRTC refused a text; with its log and the lines that it names."""


def compile_cuda(source: str, target: str) -> bytes:
    """The cubin of `source` for a compute capability such as "sm_90".

    Any number of threads may compile at once. Raises CompileError for a text that NVRTC refuses, KernelError where
    there is no NVRTC.
    """
    return compile_with_report(source, target)[0]


def compile_with_report(source: str, target: str) -> tuple[bytes, str]:
    """The cubin, and the assembler's report on registers and spills; those of a second attempt if the first one spills."""
    image, report = _compiled(source, target, OPTIONS)
    return _compiled(source, target, (*OPTIONS, CAREFUL)) if spills(report) else (image, report)


def architecture(source: str, target: str) -> str:
    """The architecture that a text is compiled for: the target, or its own variant for instructions that only this one has."""
    own, instruction = OF_ONE_CAPABILITY.get(target, (target, None))
    return own if instruction is not None and instruction.search(source) else target


def spills(report: str) -> bool:
    """True if a kernel keeps values in memory for want of registers."""
    return any(int(count) for count in re.findall(r"(\d+) bytes spill (?:stores|loads)", report))


def _compiled(source: str, target: str, wanted: Sequence[str]) -> tuple[bytes, str]:
    library = nvrtc()
    program = _P()
    _check(
        library,
        library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"generated.cu", 0, None, None),
    )
    try:
        late = (option for option, since in SINCE.items() if _version() >= since)
        options = [option.encode() for option in (f"-arch={architecture(source, target)}", *wanted, *late)]
        status = library.nvrtcCompileProgram(
            program, len(options), (ctypes.c_char_p * len(options))(*options)
        )
        log = _text(library, program, "ProgramLog")
        if status:
            raise CompileError(_explain(library, status, log, source, target))
        return _bytes(library, program, "CUBIN"), log
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def toolchain() -> str:
    """The compiler: "NVRTC 13.0". Code that another version made is different code."""
    major, minor = _version()
    return f"NVRTC {major}.{minor}"


def available() -> bool:
    """True if there is an NVRTC."""
    try:
        nvrtc()
    except KernelError:
        return False
    return True


@cache
def nvrtc() -> ctypes.CDLL:
    """The library, from the loader's path or from the wheels that torch for CUDA brings.

    Raises KernelError if there is none.
    """
    for candidate in _candidates():
        try:
            for builtins in sorted(Path(candidate).parent.glob("libnvrtc-builtins.so.*")):
                ctypes.CDLL(str(builtins))  # NVRTC opens it by name, and then finds the one that is there
            library = ctypes.CDLL(candidate)
        except OSError:
            continue
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        library.nvrtcGetErrorString.argtypes = [ctypes.c_int]
        library.nvrtcCreateProgram.argtypes = [
            ctypes.POINTER(_P),
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_int,
            _TEXTS,
            _TEXTS,
        ]
        library.nvrtcCompileProgram.argtypes = [_P, ctypes.c_int, _TEXTS]
        return library
    raise KernelError(
        "generated CUDA kernels need NVRTC: expected one of "
        + ", ".join(SONAMES)
        + ", found none; install the package nvidia-cuda-nvrtc (torch for CUDA requires it), or CUDA's toolkit"
    )


@cache
def _version() -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    library = nvrtc()
    _check(library, library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


def _candidates() -> Iterator[str]:
    """Wheels first: they are the ones that belong to this Python's torch."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for folder in FOLDERS:
            for name in SONAMES:
                path = Path(root, folder, name)
                if path.exists():
                    yield str(path)
    yield from SONAMES


def _check(library: ctypes.CDLL, status: int) -> None:
    if status:
        raise KernelError(f"NVRTC failed: {library.nvrtcGetErrorString(status).decode()}")


def _bytes(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _text(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> str:
    return _bytes(library, program, what).rstrip(b"\0").decode(errors="replace").strip()


def _explain(library: ctypes.CDLL, status: int, log: str, source: str, target: str) -> str:
    """NVRTC's log and, numbered, the lines of the text that it names, with the line before and the line after."""
    lines = source.splitlines()
    named = {int(number) for number in re.findall(r"generated\.cu\((\d+)\)", log)}
    shown = sorted({n for number in named for n in (number - 1, number, number + 1) if 0 < n <= len(lines)})
    excerpt = "\n".join(f"{number:5} | {lines[number - 1]}" for number in shown)
    reason: str = library.nvrtcGetErrorString(status).decode()
    return "\n".join(
        part
        for part in (f"NVRTC could not compile a generated kernel for {target}: {reason}", log, excerpt)
        if part
    )
