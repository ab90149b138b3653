"""`aicf kernels` shows what the registry has: every op, every kernel in its order, and what keeps one from running here."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from aicf_mlir import _C
from aicf_mlir.errors import BindError
from aicf_mlir.ir.registry import Use, capability, kernels_of, schemas, select_kernel
from aicf_mlir.tools import aicf, kernels
from aicf_mlir.tools.kernels import kernel_list, newest_device, to_json, to_table

ROOT = Path(__file__).parents[3]


def test_every_op_and_every_kernel_is_there_once_and_in_order() -> None:
    ops = kernel_list()
    assert [op.name for op in ops] == list(schemas())
    assert [kernel.id for op in ops for kernel in op.kernels] == [row["name"] for row in _C.kernel_variants()]


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_the_order_is_that_of_the_selection(target: str) -> None:
    """What is selected is the first of the list that takes the use."""
    use = Use.of("gemm", [("f32", (96, 96)), ("f32", (96, 96))], [("f32", (96, 96))], {})
    (op,) = kernel_list("gemm", "cpu" if target == "cpu" else "cuda")
    taken = [kernel.id for kernel in op.kernels if takes(use, target, kernel.id)]
    assert len(taken) > 1
    assert select_kernel(use, target)[0] == taken[0]


def takes(use: Use, target: str, kernel_id: str) -> bool:
    try:
        return select_kernel(use, target, kernel_id)[0] == kernel_id
    except Exception as error:  # noqa: BLE001  # the reason is the registry's
        assert kernel_id in str(error)
        return False


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_one_device(device: str) -> None:
    ops = kernel_list(device=device)
    assert len(ops) == len(schemas())
    assert {kernel.device for op in ops for kernel in op.kernels} == {device}


def test_cpu_kernels_run_here() -> None:
    assert all(kernel.available for op in kernel_list(device="cpu") for kernel in op.kernels)
    assert all(op.generated or op.kernels for op in kernel_list(device="cpu"))


def test_cuda_kernels_run_where_a_device_is_new_enough() -> None:
    present = newest_device()
    assert (present is None) == (_C.device_count("cuda") == 0)
    for op in kernel_list(device="cuda"):
        for kernel in op.kernels:
            here = present is not None and capability(present) >= kernel.min_sm
            can_run = (
                kernel.built
                and here
                and (kernel.library is None or kernel.library in str(present).split("+"))
            )
            assert kernel.available == can_run == (kernel.missing is None)


@pytest.mark.parametrize(
    ("op_name", "built", "present", "missing"),
    [
        ("softmax", False, "sm_90", "not in this build"),
        ("softmax", True, None, "no CUDA device here"),
        ("softmax", True, "sm_75+cublaslt", "the device here is sm_75"),
        ("softmax", True, "sm_90", None),
        ("gemm", True, "sm_90", "no cuBLASLt here"),
        ("gemm", True, "sm_90+cublaslt", None),
    ],
)
def test_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, op_name: str, built: bool, present: str | None, missing: str | None
) -> None:
    own = op_name == "softmax"
    rows = [{**row, "built": built} for row in kernels_of(op_name) if row["device"] == "cuda"]
    rows = [row for row in rows if own or row["library"]]
    monkeypatch.setattr(kernels, "kernels_of", lambda name: rows)
    monkeypatch.setattr(kernels, "newest_device", lambda: present)
    (op,) = kernel_list(op_name)
    assert op.kernels
    assert {kernel.missing for kernel in op.kernels} == {missing}
    assert (missing or "available") in to_table([op])


def test_the_text_says_all_of_an_op() -> None:
    for op in kernel_list():
        lines = to_table([op]).splitlines()
        assert f"{op.name}: {op.doc}" in lines
        assert not op.numerics or f"  {op.numerics}" in lines
        assert (
            any(line.startswith(f"  gen_{op.name}_…  generated for each use") for line in lines)
            == op.generated
        )
        shown = [line.split()[0] for line in lines if line.startswith("  ")]
        positions = [shown.index(kernel.id) for kernel in op.kernels]
        assert all(first < second for first, second in pairwise(positions))


def test_an_op_without_kernels_on_a_device_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "kernels_of", lambda name: [])
    assert "  no kernel on this device" in to_table(kernel_list("softmax", "cpu")).splitlines()


def test_generated_kernels_are_named_together() -> None:
    generated = [name for name, schema in schemas().items() if schema.generated]
    assert f"generated for each use: {', '.join(generated)}" in to_table(kernel_list()).splitlines()


def test_json() -> None:
    found: dict[str, Any] = json.loads(to_json(kernel_list("gemm")))
    assert found["version"] == 1
    (op,) = found["ops"]
    assert list(op) == ["name", "doc", "numerics", "generated", "kernels"]
    assert list(op["kernels"][0]) == [
        "id",
        "device",
        "min_sm",
        "max_sm",
        "library",
        "built",
        "available",
        "missing",
    ]
    assert [kernel["id"] for kernel in op["kernels"]] == [row["name"] for row in kernels_of("gemm")]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gem", "there is no kernel op 'gem'; did you mean gemm?"),
        ("kernel.gelu_tan", "there is no kernel op 'kernel.gelu_tan'; did you mean gelu_tanh"),
        ("gemm_cpu_blas", "'gemm_cpu_blas' is a kernel of the op gemm: aicf kernels gemm"),
        ("xyzzy", "there is no kernel op 'xyzzy'; there are add, relu, gemm,"),
    ],
)
def test_an_op_that_is_not_there(capsys: pytest.CaptureFixture[str], name: str, message: str) -> None:
    with pytest.raises(BindError) as refused:
        kernel_list(name)
    assert str(refused.value).startswith(message)
    assert aicf.main(["kernels", name]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"aicf: error: {refused.value}\n"


def test_the_tool_prints_both_forms(capsys: pytest.CaptureFixture[str]) -> None:
    assert aicf.main(["kernels", "gemm", "--device", "cpu"]) == 0
    assert capsys.readouterr().out == f"{to_table(kernel_list('gemm', 'cpu'))}\n"
    assert aicf.main(["kernels", "--json"]) == 0
    assert capsys.readouterr().out == f"{to_json(kernel_list())}\n"
    with pytest.raises(SystemExit) as left:
        aicf.main(["kernels", "--device", "tpu"])
    assert left.value.code == 2
