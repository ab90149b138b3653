"""LLVM IR to object code: what is refused, and what a machine without llvmlite says."""

from __future__ import annotations

import sys

import children
import pytest

from aicf_mlir.codegen.native import compile_objects, toolchain, undefined_symbols
from aicf_mlir.errors import KernelError

PLAIN = "define void @f() {\n  ret void\n}\n"
CALLS = """
declare double @nowhere(double)
define double @f(double %x) {
  %y = call double @nowhere(double %x)
  ret double %y
}
"""


def test_objects_are_the_same_each_time() -> None:
    one, two = compile_objects([PLAIN, PLAIN])
    assert one == two
    assert list(undefined_symbols(one)) == []


def test_a_symbol_from_outside_is_refused_by_name() -> None:
    with pytest.raises(KernelError, match="nowhere, which nothing provides"):
        compile_objects([CALLS])


@pytest.mark.parametrize("text", ["define void @f() {", "define i32 @f() {\n  ret i32 %x\n}\n", "nonsense"])
def test_text_that_is_not_llvm_ir_is_refused(text: str) -> None:
    with pytest.raises(KernelError, match="not valid LLVM IR"):
        compile_objects([text])


def test_only_elf_is_read() -> None:
    with pytest.raises(KernelError, match="ELF object of 64 bits"):
        list(undefined_symbols(b"MZ"))


def test_without_llvmlite() -> None:
    """The toolchain is known all the same, and the error names what to install."""
    code = f"""
import sys
sys.modules["llvmlite"] = sys.modules["llvmlite.binding"] = None
from aicf_mlir.codegen.native import compile_objects, toolchain
from aicf_mlir.errors import KernelError
assert toolchain() == {toolchain()!r}
try:
    compile_objects([{PLAIN!r}])
except KernelError as error:
    print(error)
"""
    done = children.run([sys.executable, "-c", code], check=True)
    assert "pip install 'xdsl[llvm]'" in done.stdout


def test_the_toolchain_names_llvmlite_and_the_processor() -> None:
    assert toolchain().startswith("llvmlite 0.")
    code = "import sys; from aicf_mlir.codegen.native import toolchain; toolchain(); assert 'llvmlite' not in sys.modules"
    children.run([sys.executable, "-c", code], check=True)
