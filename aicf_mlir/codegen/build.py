"""Kernels to code that runs: text, machine code from the cache or the compiler, loaded once a process."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from aicf_mlir import _C
from aicf_mlir.codegen import native
from aicf_mlir.codegen.cache import cached
from aicf_mlir.codegen.functions import CALLED
from aicf_mlir.codegen.kernel import Code, Kernel
from aicf_mlir.codegen.schedule import generate
from aicf_mlir.ir.registry import capability

_loaded: dict[str, _C.Code] = {}
_lock = threading.Lock()


def build(kernels: Iterable[Kernel]) -> dict[str, _C.Code]:
    """The code of each kernel by its id. KernelError where a compiler is needed and missing, or refuses the text."""
    wanted = {kernel.id: kernel for kernel in kernels}
    with _lock:
        for id_, kernel in wanted.items():
            if id_ not in _loaded:
                _loaded[id_] = _load(kernel, generate(kernel))
        return {id_: _loaded[id_] for id_ in wanted}


def _load(kernel: Kernel, code: Code) -> _C.Code:
    phases = [(p.function, p.count, p.grain, p.threads, p.shared) for p in code.phases]
    pairs = sorted(kernel.launch_in_place)
    if kernel.target == "cpu":
        image = cached((native.toolchain(), code.source), lambda: native.compile_objects([code.source])[0])
        return _C.Code.cpu(kernel.id, image, phases, pairs, code.workspace, CALLED)
    from aicf_mlir.codegen import nvrtc
    from aicf_mlir.codegen.cuda.dependency import all_wait

    image = cached(
        (nvrtc.toolchain(), kernel.target, code.source),
        lambda: nvrtc.compile_cuda(code.source, kernel.target),
    )
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
