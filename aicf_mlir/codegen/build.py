"""Kernels to code that runs: text, machine code from the cache or the compiler, loaded while a plan uses it.

Loaded code takes memory of the process, and of a GPU too, so it is freed with the last launch of it. Compiling is the slow part:
the machine code of the last kernels is kept.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakValueDictionary

from aicf_mlir import _C
from aicf_mlir.codegen import native
from aicf_mlir.codegen.cache import cached
from aicf_mlir.codegen.functions import CALLED
from aicf_mlir.codegen.schedule import generate
from aicf_mlir.ir.registry import capability, is_cpu
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
        codes = {id_: code for id_ in wanted if (code := _loaded.get(id_)) is not None}
        missing = [kernel for id_, kernel in wanted.items() if id_ not in codes]
        for kernel, made in zip(missing, _make(missing), strict=True):
            codes[kernel.id] = _loaded[kernel.id] = _load(kernel, *made)
        return codes


def _make(kernels: Sequence[Kernel]) -> list[tuple[Code, bytes]]:
    """The text and the machine code of each; what a GPU runs is compiled by as many threads as there are processors."""
    made = {kernel.id: _made[kernel.id] for kernel in kernels if kernel.id in _made}
    texts = [(kernel, generate(kernel)) for kernel in kernels if kernel.id not in made]
    images = list[bytes]()
    if len(texts) > 1 and not is_cpu(texts[0][0].target):
        pool = ThreadPoolExecutor(min(len(texts), len(os.sched_getaffinity(0))), "aicf-compile")
        try:
            images += pool.map(_image, *zip(*texts, strict=True))
        finally:
            pool.shutdown(cancel_futures=True)
    else:
        images += [_image(kernel, code) for kernel, code in texts]
    made |= {kernel.id: (code, image) for (kernel, code), image in zip(texts, images, strict=True)}
    for kernel in kernels:
        _made[kernel.id] = made[kernel.id]
        _made.move_to_end(kernel.id)
    while len(_made) > MOST_MADE:
        _made.popitem(last=False)
    return [made[kernel.id] for kernel in kernels]


def _image(kernel: Kernel, code: Code) -> bytes:
    if is_cpu(kernel.target):
        return cached((native.toolchain(), code.source), lambda: native.compile_objects([code.source])[0])
    from aicf_mlir.codegen import nvrtc

    return cached(
        (nvrtc.toolchain(), kernel.target, code.source),
        lambda: nvrtc.compile_cuda(code.source, kernel.target),
    )


def _load(kernel: Kernel, code: Code, image: bytes) -> _C.Code:
    phases = [p.row for p in code.phases]
    pairs = sorted(kernel.launch_in_place)
    if is_cpu(kernel.target):
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
        code.together and code.together.row,
    )
