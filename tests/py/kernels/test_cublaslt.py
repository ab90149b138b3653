"""Products by cuBLASLt: what is planned without a GPU, and on one what the general tests of kernels do not reach."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from models import mlp, regression, to_device

from aicf_mlir import _C, AicfError, OpKind, SelectionError, compile_train_step, op_call
from aicf_mlir.ir.registry import architecture, capability, runs_on

TARGET = "sm_90+cublaslt"
SQUARE = ("bf16", (8, 8))
HALF = ("f16", (8, 8))
F32 = ("f32", (8, 8))
ODD = ("f16", (9, 9))
TF32 = {"allow_tf32": True}


def select(name: str, inputs: list[Any], outputs: list[Any], attrs: dict[str, Any], counts: Any) -> str:
    return _C.select_kernel("gemm_epilogue", inputs, outputs, attrs, TARGET, name, counts)[0]


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "attrs", "counts", "reason"),
    [
        ("bf16", [SQUARE] * 2, [SQUARE], {"act": "gelu"}, ((1, 1, 0, 0), (1, 0, 0)), "but a bias and relu"),
        ("f32", [F32] * 3, [F32], {"act_grad": "relu"}, ((1, 1, 0, 1), (1, 0, 0)), "but a bias and relu"),
        ("f16", [ODD] * 2 + [("f16", (9,))], [ODD], {}, ((1, 1, 1, 0), (1, 0, 0)), "a multiple of 16 bytes"),
        ("f16", [HALF] * 2, [HALF, ("f16", (8,))], {}, ((1, 1, 0, 0), (1, 0, 1)), "has no bias_grad"),
        ("bf16", [SQUARE] * 2, [SQUARE] * 2, {}, ((1, 1, 0, 0), (1, 1, 0)), "but a bias and relu"),
        ("tf32", [F32] * 2, [F32], {}, ((1, 1, 0, 0), (1, 0, 0)), "needs allow_tf32"),
        ("f32", [F32] * 2, [F32, ("f32", (8,))], TF32, ((1, 1, 0, 0), (1, 0, 1)), "has no bias_grad"),
        ("tf32", [F32] * 2, [F32, ("f32", (8,))], TF32, ((1, 1, 0, 0), (1, 0, 1)), "has no bias_grad"),
    ],
)  # fmt: skip
def test_what_it_declines(
    name: str, inputs: list[Any], outputs: list[Any], attrs: dict[str, Any], counts: Any, reason: str
) -> None:
    with pytest.raises(SelectionError, match=reason):
        select(f"gemm_epilogue_{name}_cublaslt", inputs, outputs, attrs, counts)
    assert not select("", inputs, outputs, attrs, counts).endswith(f"_{name}_cublaslt")


def test_a_product_without_elements_or_with_two_small_levels_is_our_own() -> None:
    for a, out in ((("f32", (0, 4)), ("f32", (0, 8))), (("f32", (3, 0)), ("f32", (3, 8)))):
        b = ("f32", (a[1][1], 8))
        assert not _C.select_kernel("gemm", [a, b], [out], {}, TARGET)[0].endswith("cublaslt")
    heads = ("f32", (2, 3, 4, 4), (96, 4, 12, 1))
    dense = ("f32", (2, 3, 4, 4))
    assert not _C.select_kernel("gemm", [heads, dense], [dense], {}, TARGET)[0].endswith("cublaslt")
    batch = ("f32", (64, 192, 192))
    assert _C.select_kernel("gemm", [batch, batch], [batch], {}, TARGET)[0] == "gemm_f32_cublaslt"
    assert _C.select_kernel("gemm", [batch, batch], [batch], TF32, TARGET)[0] == "gemm_tf32_cublaslt"
    assert _C.select_kernel("gemm", [heads, dense], [dense], TF32, TARGET)[0] == "gemm_tf32_tc"


def heads(images: int, count: int, rows: int, size: int, element: str = "bf16") -> Any:
    """Queries, or keys, of a joint projection [images, rows, 3, heads, size]."""
    return (element, (images, count, rows, size), (3 * rows * count * size, size, 3 * count * size, 1))


@pytest.mark.parametrize(
    ("images", "count", "rows", "size", "taken"),
    [
        (64, 4, 196, 48, True),
        (4, 64, 196, 48, True),
        (64, 4, 256, 64, True),  # rows of 16 bytes, short sums, and work enough in each call
        (64, 4, 128, 64, False),  # rows of 16 bytes: our own tiles copy them at once
        (16, 4, 512, 256, False),  # long sums: our own tiles are as fast up to more work
        (64, 17, 196, 48, False),  # too many calls
        (64, 16, 196, 48, True),  # as many calls as there may be
        (256, 12, 49, 32, True),  # windows: less work in each than one product needs
        (64, 4, 98, 24, False),  # enough work in all, too little in each call
    ],
)
def test_which_two_levels_of_a_batch_are_calls(
    images: int, count: int, rows: int, size: int, taken: bool
) -> None:
    q, out = heads(images, count, rows, size), ("bf16", (images, count, rows, rows))
    found, workspace = _C.select_kernel("gemm", [q, q], [out], {"trans_b": True}, TARGET)
    assert found == ("gemm_bf16_cublaslt" if taken else "gemm_bf16_tc")
    if taken:
        larger, parts = max(images, count), -(-size // 64)
        assert workspace == min(parts * larger * rows * rows * 4, 32 << 20)
    assert heads(64, 4, 196, 48)[2] == (112896, 48, 576, 1)


@pytest.mark.parametrize(
    ("name", "element", "sizes", "reason"),
    [
        (
            "bf16",
            "bf16",
            (64, 4, 128, 64),
            "268435456 products of elements or more in each call, got 67108864",
        ),
        ("bf16", "bf16", (64, 4, 256, 64), ""),
        ("f16", "f16", (64, 4, 98, 24), "16777216 products of elements or more in each call, got 14751744"),
        ("f16", "f16", (64, 4, 196, 48), ""),
        ("f32", "f32", (64, 4, 196, 64), "is taken for two levels of a batch where rows are no multiple"),
        (
            "f32",
            "f32",
            (64, 4, 197, 48),
            "134217728 products of elements or more in each call, got 119221248",
        ),
        ("f32", "f32", (64, 4, 197, 64), ""),
        ("tf32", "f32", (64, 4, 197, 64), "is not taken for two levels of a batch in tf32"),
        ("f64", "f64", (64, 4, 197, 64), "is not taken for two levels of a batch in f64"),
    ],
)
def test_which_two_levels_it_takes_unless_it_is_named(
    name: str, element: str, sizes: tuple[int, int, int, int], reason: str
) -> None:
    images, count, rows, _ = sizes
    q, out = heads(*sizes, element), (element, (images, count, rows, rows))
    attrs = {"trans_b": True, "allow_tf32": name == "tf32"}
    kernel = f"gemm_{name}_cublaslt"
    found = _C.kernel_preference("gemm", [q, q], [out], attrs, kernel)
    assert reason in found if reason else not found
    assert (_C.select_kernel("gemm", [q, q], [out], attrs, TARGET)[0] == kernel) == (not reason)
    assert _C.select_kernel("gemm", [q, q], [out], attrs, TARGET, kernel)[0] == kernel


def test_a_smaller_level_above_16_is_declined() -> None:
    for images, count in ((64, 17), (17, 64)):
        q, out = heads(images, count, 196, 48), ("bf16", (images, count, 196, 196))
        with pytest.raises(SelectionError, match=f"at most 16 members, got {images} x {count}"):
            _C.select_kernel("gemm", [q, q], [out], {"trans_b": True}, TARGET, "gemm_bf16_cublaslt")


def test_a_call_that_had_to_divide_odd_rows_is_our_own() -> None:
    """The results of all 8 calls would fill a chip, those of one do not."""
    m, n, k = 61, 61, 4001
    a = ("f32", (16, 8, m, k), (8 * m * k + k, m * k, k, 1))
    b, out = ("f32", (16, 8, k, n)), ("f32", (16, 8, m, n))
    reason = "does not divide k where rows are no multiple of 16 bytes"
    assert _C.kernel_preference("gemm", [a, b], [out], {}, "gemm_f32_cublaslt") == reason
    assert _C.select_kernel("gemm", [a, b], [out], {}, TARGET)[0] != "gemm_f32_cublaslt"


def test_only_its_own_target_has_it() -> None:
    assert _C.select_kernel("gemm", [SQUARE] * 2, [SQUARE], {}, "sm_90")[0] == "gemm_bf16_tc"
    with pytest.raises(SelectionError, match=r"on sm_90: needs cuBLASLt: a target with \+cublaslt"):
        _C.select_kernel("gemm", [SQUARE] * 2, [SQUARE], {}, "sm_90", "gemm_bf16_cublaslt")


def test_a_workspace_holds_partial_sums() -> None:
    square = ("bf16", (512, 512))
    plain = _C.select_kernel("gemm", [square] * 2, [square], {}, TARGET)
    assert plain == ("gemm_bf16_cublaslt", 512 // 64 * 512 * 512 * 4)
    large = ("bf16", (4096, 4096))
    assert _C.select_kernel("gemm", [large] * 2, [large], {}, TARGET)[1] == 32 << 20


def test_what_is_too_small_or_lies_unaligned_is_our_own_unless_it_is_named() -> None:
    for element, size, reason in (
        ("f32", 1624, "is taken for 4294967296 products of elements or more, got 4283098624"),
        ("f32", 1625, ""),
        ("f64", 64, ""),
        ("bf16", 513, "is taken for rows of a multiple of 16 bytes in bf16"),
        ("f16", 320, "is taken for 33554432 products of elements or more, got 32768000"),
        ("bf16", 512, ""),
    ):
        square = (element, (size, size))
        name = f"gemm_{element}_cublaslt"
        assert _C.kernel_preference("gemm", [square] * 2, [square], {}, name) == reason
        chosen = _C.select_kernel("gemm", [square] * 2, [square], {}, TARGET)[0]
        assert (chosen == name) == (not reason)
        assert _C.select_kernel("gemm", [square] * 2, [square], {}, TARGET, name)[0] == name
    with pytest.raises(AicfError, match="no kernel is called 'fastest'"):
        _C.kernel_preference("gemm", [F32] * 2, [F32], {}, "fastest")


def test_the_library_divides_only_products_of_f32_whose_rows_are_aligned() -> None:
    reason = "does not divide k where rows are no multiple of 16 bytes"
    for columns, expected in ((415, reason), (416, "")):
        given = [("f32", (2048, 512)), ("f32", (2048, columns))]
        result, attrs = [("f32", (512, columns))], {"trans_a": True}
        assert _C.kernel_preference("gemm", given, result, attrs, "gemm_f32_cublaslt") == expected
        chosen = _C.select_kernel("gemm", given, result, attrs, TARGET)[0]
        assert (chosen == "gemm_f32_cublaslt") == (not expected)


@pytest.mark.parametrize(
    ("target", "present", "runs"),
    [
        ("sm_80", "sm_90", True),
        ("sm_90", "sm_80", False),
        ("sm_80", TARGET, True),
        (TARGET, "sm_90", False),
        (TARGET, "sm_100+cublaslt", True),
    ],
)
def test_a_plan_runs_where_nothing_is_missing(target: str, present: str, runs: bool) -> None:
    assert runs_on(target, present) == runs
    assert f"sm_{capability(target)}" == architecture(target)


@pytest.mark.gpu
@pytest.mark.cublaslt
@pytest.mark.parametrize("element", ["f32", "tf32", "f16", "bf16"])
def test_a_missing_number_is_no_zero_behind_relu(element: str) -> None:
    """As in torch: relu of NaN is NaN."""
    dtypes = {"f16": torch.float16, "bf16": torch.bfloat16}
    dtype, allow_tf32 = dtypes.get(element, torch.float32), element == "tf32"
    draw = torch.Generator("cuda").manual_seed(0)
    x, w, bias = (
        torch.randn(*shape, generator=draw, device="cuda", dtype=torch.float32).to(dtype)
        for shape in ((64, 64), (64, 64), (64,))
    )
    x[3, 5], x[7, 1] = float("nan"), float("inf")
    name = f"gemm_epilogue_{element}_cublaslt"
    for inputs in ({"a": x, "b": w}, {"a": x, "b": w, "bias": bias}):
        out = torch.full((64, 64), 7.0, device="cuda", dtype=dtype)
        op_call(
            OpKind.GemmEpilogue,
            inputs,
            {"out": out},
            {"trans_b": True, "act": "relu", "allow_tf32": allow_tf32},
            name,
        )
        z = x.double() @ w.double().T + (bias.double() if "bias" in inputs else 0)
        torch.testing.assert_close(
            out.double(), torch.relu(z), rtol=2e-2, atol=2e-2, equal_nan=True, check_dtype=False
        )


@pytest.mark.gpu
@pytest.mark.cublaslt
@pytest.mark.parametrize("element", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("levels", [(3, 5), (5, 3)])
@pytest.mark.parametrize("trans", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("sizes", [(49, 37, 24, 1), (48, 40, 24, 8)], ids=["odd rows", "rows of vectors"])
def test_two_levels_of_a_batch(
    element: str, levels: tuple[int, int], trans: tuple[bool, bool], sizes: tuple[int, int, int, int]
) -> None:
    """Views of joint projections, whose rows start anywhere or at vectors, into a block whose other elements stay."""
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[element]
    draw = torch.Generator("cuda").manual_seed(1)
    outer, inner = levels
    m, n, k, more = sizes

    def operand(rows: int, columns: int) -> torch.Tensor:
        joint = torch.randn(outer, rows, 3, inner, columns + more, generator=draw, device="cuda").to(dtype)
        return joint[:, :, 1, :, :columns].transpose(1, 2)

    a, b = operand(*((k, m) if trans[0] else (m, k))), operand(*((n, k) if trans[1] else (k, n)))
    block = torch.full((outer, m, inner, n + 8), 7.0, device="cuda", dtype=dtype)
    out = block[..., :n].transpose(1, 2)
    attrs = {"trans_a": trans[0], "trans_b": trans[1], "allow_tf32": False}
    op_call(OpKind.Gemm, {"a": a, "b": b}, {"out": out}, attrs, f"gemm_{element}_cublaslt")
    wide_a, wide_b = (
        each.double().transpose(-1, -2) if turned else each.double()
        for each, turned in zip((a, b), trans, strict=True)
    )
    near = 1e-5 if element == "f32" else 2e-2
    torch.testing.assert_close(out.double(), wide_a @ wide_b, rtol=near, atol=near)
    assert bool((block[..., n:] == 7.0).all())


@pytest.mark.gpu
@pytest.mark.cublaslt
def test_twenty_runs_of_one_plan_give_the_same_bits() -> None:
    """Fresh steps, their memory elsewhere each time: the algorithms and their results are the same."""
    batch = to_device(regression(512, 256), "cuda")
    found: list[tuple[list[str], list[torch.Tensor]]] = []
    kept: list[torch.Tensor] = []
    for number in range(20):
        torch.manual_seed(0)
        model = mlp(256, 256, 256).to("cuda")
        kept.append(torch.empty(1 + 4097 * number, device="cuda"))
        optimizer = torch.optim.Adam(model.parameters())
        step = compile_train_step(model, optimizer, example=batch, device="cuda", precision="bf16")
        step.train_step(batch)
        step.capture(batch)
        step.replay(5)
        found.append((step.executed_kernels(), [p.detach().clone() for p in model.parameters()]))
    assert any("cublaslt" in name for name in found[0][0])
    for names, tensors in found[1:]:
        assert names == found[0][0]
        assert all(torch.equal(a, b) for a, b in zip(tensors, found[0][1], strict=True))
