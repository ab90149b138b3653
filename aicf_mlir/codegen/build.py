"""Kernels to code that runs: text, machine code from the cache or the compiler, loaded while a plan uses it.

Loaded code takes memory of the process, and of a GPU too, so it is freed with the last launch of it. Compiling is the slow part:
the machine code of the last kernels is kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from weakref import WeakValueDictionary

from aicf_mlir import _C
from aicf_mlir.codegen import native
from aicf_mlir.codegen.cache import cached
from aicf_mlir.codegen.functions import CALLED
from aicf_mlir.codegen.schedule import generate
from aicf_mlir.ir.registry import capability
from aicf_mlir.kernels.kernel import Code, Kernel

MOST_MADE = 512
"""The most made kernels that are kept, each of some kilobytes."""

_loaded = WeakValueDictionary[str, _C.Code]()
_made = OrderedDict[str, tuple[Code, bytes]]()
"""Text and machine code, by the id of the kernel; the most recently used is at the end."""
_lock = threading.Lock()


def build(kernels: Iterable[Kernel]) -> dict[str, _C.Code]:
    """The code of each kernel by its id. KernelError if a compiler is needed and missing, or refuses the text."""
    wanted = {kernel.id: kernel for kernel in kernels}
    with _lock:
        codes: dict[str, _C.Code] = {}
        for id_, kernel in wanted.items():
            if (code := _loaded.get(id_)) is None:
                code = _loaded[id_] = _load(kernel, *_make(kernel))
            codes[id_] = code
        return codes


def _make(kernel: Kernel) -> tuple[Code, bytes]:
    if kernel.id in _made:
        _made.move_to_end(kernel.id)
        return _made[kernel.id]
    code = generate(kernel)
    _made[kernel.id] = code, _image(kernel, code)
    if len(_made) > MOST_MADE:
        _made.popitem(last=False)
    return _made[kernel.id]


def _image(kernel: Kernel, code: Code) -> bytes:
    if kernel.target == "cpu":
        return cached((native.toolchain(), code.source), lambda: native.compile_objects([code.source])[0])
    from aicf_mlir.codegen import nvrtc

    return cached(
        (nvrtc.toolchain(), kernel.target, code.source),
        lambda: nvrtc.compile_cuda(code.source, kernel.target),
    )


def _load(kernel: Kernel, code: Code, image: bytes) -> _C.Code:
    phases = [(p.function, p.count, p.grain, p.threads, p.shared) for p in code.phases]
    pairs = sorted(kernel.launch_in_place)
    if kernel.target == "cpu":
        return _C.Code.cpu(kernel.id, image, phases, pairs, code.workspace, CALLED)
    from aicf_mlir.codegen.cuda.dependency import all_wait

    return _C.Code.cuda(
        kernel.id,
        capability(kernel.target),
        image,
        phases,
        pairs,
        code.workspace,
        code.one_table,
        all_wait(code.source),
    )
