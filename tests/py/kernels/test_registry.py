"""The kernel registry: no name twice, no kernel without a schema, order as preference, reasons to refuse."""

from __future__ import annotations

import ast
import pickle
import sys
from pathlib import Path

import children
import pytest

import aicf_mlir
from aicf_mlir import _C, OpKind, SelectionError, VerifyError
from aicf_mlir.ir.registry import schemas

ROOT = Path(__file__).resolve().parents[3]
OP = ("attrs", "registry", "schema", "target", "tensor_desc")
F32 = ("f32", (2, 2))


def test_registration_and_selection_refuse_by_name(tmp_path: Path) -> None:
    program = tmp_path / "registry_refusals"
    sources = [
        ROOT / "tests/cpp/registry_refusals.cpp",
        *(ROOT / f"csrc/op/{name}.cpp" for name in OP),
    ]
    children.run(["c++", "-std=c++17", f"-I{ROOT / 'csrc'}", "-o", program, *sources], check=True)
    printed = children.run([program], check=True).stdout
    assert printed.splitlines() == [
        "no kernel runs copy() -> () on cpu; none is registered",
        "the schema of again is registered twice, or has the number 25 of copy",
        "the schema of copy is registered twice, or has the number 26 of copy",
        "the results 'parts' of split have no operands to be counted by",
        "the operands 'x' of join are many(); any() is of results",
        "kernel 'relu_cpu' is registered before the schema of its op",
        "kernel 'copy_blue' is registered twice",
        "no kernel runs copy() -> () on cpu; candidates:",
        "  copy_blue: needs a blue tensor",
        "  copy_new: runs on cuda",
        "no kernel runs copy() -> () on sm_80; candidates:",
        "  copy_blue: runs on cpu",
        "  copy_new: needs sm_90",
        "copy_first",
        "copy_first",
        "copy_tiled[64x64]",
        "kernel 'copy_other' made a launch of 'copy_first' ready instead of its own",
        "kernel 'copy_new' is not in this build",
        "kernel 'copy_first' cannot choose [64x64] for these operands; it runs as copy_first",
        "copy_tiled[64x64]",
        "kernel 'copy_tiled' cannot choose [32x32] for these operands; it runs as copy_tiled[64x64]",
        "copy_sized[64x64]",
        "copy_sized[128x128]",
        "kernel 'copy_sized' cannot choose [7] for these operands; it can choose [64x64], [128x128]",
    ]


def test_selection_lists_every_candidate_with_its_reason() -> None:
    names = [row["name"] for row in _C.kernel_variants() if row["op"] == "gemm"]
    i64 = ("i64", (2, 2))
    with pytest.raises(SelectionError, match=r"map has no prebuilt kernel: its kernels are generated"):
        _C.select_kernel("map", [F32], [F32], {"body": "", "shape": [2, 2]}, "cpu", "", ((1, 0), (1,)))
    with pytest.raises(VerifyError, match=r"gemm: "):
        _C.select_kernel(OpKind.Gemm, [i64, i64], [i64], {}, "cpu")
    f16 = ("f16", (2, 2))
    with pytest.raises(SelectionError) as caught:
        _C.select_kernel(OpKind.Gemm, [f16, f16], [f16], {}, "sm_75")
    lines = str(caught.value).splitlines()
    assert lines[0] == "no kernel runs gemm(f16[2, 2], f16[2, 2]) -> (f16[2, 2]) on sm_75; candidates:"
    assert [line.split(":")[0].strip() for line in lines[1:]] == names
    assert _C.select_kernel(OpKind.Gemm, [F32, F32], [F32], {}, "cpu") == ("gemm_cpu_blas", 0)


@pytest.mark.parametrize("target", ["gpu", "sm_", "sm_9", "sm_9x", "sm_09", "sm_1000", "sm_999", "sm_70", ""])
def test_selection_refuses_an_unknown_target(target: str) -> None:
    with pytest.raises(
        VerifyError, match=r"there is no target .*; there are cpu, sm_75, sm_80, .*, sm_90, .*sm_120"
    ):
        _C.select_kernel(OpKind.EltwiseRelu, [F32], [F32], {}, target)


def test_a_target_without_a_gpu_selects_cuda_kernels() -> None:
    assert _C.select_kernel(OpKind.Gemm, [F32, F32], [F32], {}, "sm_90")[0].startswith("gemm_f32")


def test_every_kind_has_a_kernel_on_every_device() -> None:
    rows = _C.kernel_variants()
    assert len({row["name"] for row in rows}) == len(rows)
    for schema in [row for row in schemas().values() if not row.generated]:
        kind = OpKind(schema.number)
        devices = {row["device"] for row in rows if row["kind"] == kind}
        assert devices == {"cpu", "cuda"}, kind
    assert all(row["built"] for row in rows if row["device"] == "cpu" or _C.with_cuda)


def test_the_stub_has_the_names_of_the_module() -> None:
    """`_C.pyi` and the compiled module name the same things; its types serve the type checker."""
    tree = ast.parse((ROOT / "aicf_mlir/_C.pyi").read_text())
    types_only = {
        "_Kinds",
        "KernelVariant",
        "MemoryStats",
        "ExecutorStats",
        "GraphNode",
        "Launch",
        "ProductTile",
    }
    stub = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    annotated = [node for node in tree.body if isinstance(node, ast.AnnAssign)]
    values = {ast.unparse(node.target) for node in annotated if ast.unparse(node.annotation) != "TypeAlias"}
    real = {name for name in dir(_C) if not name.startswith("__")}
    assert (stub.keys() - types_only) | values == real
    for name, node in stub.items():
        if name in types_only or not isinstance(node, ast.ClassDef) or name == "OpKind":
            continue
        methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)} - {
            *("__init__", "__buffer__", "__enter__", "__exit__", "__len__"),
        }
        assert methods == {method for method in vars(getattr(_C, name)) if not method.startswith("_")}, name


def test_importing_the_package_needs_neither_torch_nor_numpy() -> None:
    code = (
        "import sys, aicf_mlir; aicf_mlir.op_call; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    children.run([sys.executable, "-W", "error::DeprecationWarning", "-c", code], check=True)
    assert set(aicf_mlir.__all__) <= set(dir(aicf_mlir))
    with pytest.raises(AttributeError, match=r"module 'aicf_mlir' has no attribute 'train'"):
        aicf_mlir.train  # noqa: B018


def test_a_kind_is_an_int_that_pickles() -> None:
    assert OpKind.Gemm == 2
    assert pickle.loads(pickle.dumps(OpKind.AdamStep)) is OpKind.AdamStep
    assert {(kind.name, int(kind)) for kind in OpKind} == {
        (row.kind, row.number) for row in schemas().values()
    }
