"""LLVM IR text to object code for the processor of this machine, through llvmlite; it is imported here alone.

Objects are position-independent and refer to nothing outside themselves: a loader needs no LLVM and no linker.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

from aicf_mlir.codegen.llvm.fused import without_fused
from aicf_mlir.errors import KernelError
from aicf_mlir.machine import processor

if TYPE_CHECKING:
    from types import ModuleType


def toolchain() -> str:
    """The inputs of object code besides the text: llvmlite's version and the processor. llvmlite is not imported."""
    try:
        version = metadata.version("llvmlite")
    except metadata.PackageNotFoundError:
        version = "none"
    return f"llvmlite {version}; {platform.machine()}; {processor.name()}; {processor.flags()}"


def _binding() -> ModuleType:
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise KernelError(
            "a kernel must be compiled and llvmlite is not installed; pip install 'xdsl[llvm]', or run where the cache of "
            "kernels has it"
        ) from error
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def compile_objects(texts: Sequence[str], cpu: str | None = None, features: str | None = None) -> list[bytes]:
    """The object code of each text, for this machine's processor unless another is named, such as "x86-64".

    llvmlite calls LLVM under one lock, so they are compiled one after the other. Raises KernelError where llvmlite
    is missing, for text that is not LLVM IR, and for an object that needs a symbol from outside.
    """
    llvm = _binding()
    if cpu is None:
        cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return [_compile(llvm, text, cpu or "", features or "") for text in texts]


def _compile(llvm: ModuleType, text: str, cpu: str, features: str) -> bytes:
    if platform.machine() in X86 and "+fma" not in features.split(",") and cpu not in WITH_FUSED:
        text = without_fused(text)
    # A machine is not shared: the object that takes it over frees it.
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu, features, opt=2, reloc="pic", codemodel="small"
    )
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.verify()  # LLVM ends the process if it optimises a module that is not valid
    except RuntimeError as error:
        raise KernelError(f"generated code is not valid LLVM IR: {error}") from error
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    _optimise(llvm, module, machine)
    code: bytes = machine.emit_object(module)
    if missing := list(undefined_symbols(code)):
        raise KernelError(f"generated code refers to {', '.join(missing)}, which nothing provides")
    return code


X86 = ("x86_64", "AMD64")
"""Python's names of machines that may lack fused multiply-add."""
WITH_FUSED = ("x86-64-v3", "x86-64-v4")
"""The names of x86-64 processors with fused multiply-add; for others, the features tell."""
PASSES = ("always_inliner", "sroa", "new_gvn", "simplify_cfg")
"""All passes that the text needs, which has its lanes and its order. LLVM's own pipeline takes twice as long for code that is
no faster, and its vector-combine fails on some vectors of one lane: an assertion of LLVM 22 ends the process.
"""


def _optimise(llvm: ModuleType, module: Any, machine: Any) -> None:
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    manager = llvm.create_new_module_pass_manager()
    for name in PASSES:
        getattr(manager, f"add_{name}_pass")()
    manager.run(module, builder)


SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
SYMBOL_TABLE = 2


def undefined_symbols(code: bytes) -> Iterator[str]:
    """The names of the symbols that an ELF object of 64 bits expects from outside."""
    if code[:6] != b"\x7fELF\x02\x01":
        raise KernelError("expected an ELF object of 64 bits, little-endian")
    (offset,) = struct.unpack_from("<Q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    sections: list[tuple[int, ...]] = [
        SECTION.unpack_from(code, offset + number * size) for number in range(count)
    ]
    for section in sections:
        if section[1] != SYMBOL_TABLE:
            continue
        names = sections[section[6]][4]
        for at in range(section[4] + SYMBOL.size, section[4] + section[5], SYMBOL.size):
            name, _, _, home, _, _ = SYMBOL.unpack_from(code, at)
            if home == 0:
                end = code.index(b"\0", names + name)
                yield code[names + name : end].decode()
