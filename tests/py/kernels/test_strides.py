"""What strides an operand may have: what the schemas say, what is refused for any caller, with the message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from aicf_mlir import _C, KernelError, OpKind, PlanError, SelectionError, VerifyError, op_call
from aicf_mlir.ir.registry import Operand, schemas

TALL, DENSE = ("f32", (3, 2)), ("f32", (4, 4))


def zeros(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.zeros(shape, np.float32)


# ---- schemas ----


def test_a_schema_says_which_layouts_each_operand_has() -> None:
    epilogue = schemas()["gemm_epilogue"]
    assert epilogue.inputs == (
        Operand("a", "one", "strided"),
        Operand("b", "one", "strided"),
        Operand("bias", "optional", "dense"),
        Operand("saved", "optional", "strided"),
    )
    assert [row.layout for row in epilogue.outputs] == ["strided", "strided", "dense"]
    assert schemas()["relu"].inputs == (Operand("x", "one"),)
    assert schemas()["copy"].outputs == (Operand("y", "one", "strided"),)


# ---- rules of any caller ----


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (
            (*TALL, (1, -3)),
            TALL,
            "input 0: a stride is 0 or more: got strides [1, -3] for shape [3, 2]; pass a copy",
        ),
        (
            (*TALL, (0, 2**62)),
            TALL,
            f"input 0: the strides [0, {2**62}] for shape [3, 2] of f32 span more than 2^63 bytes",
        ),
        (
            (*TALL, (2**62, 2**62)),
            TALL,
            f"input 0: the strides [{2**62}, {2**62}] for shape [3, 2] of f32 span more than 2^63 bytes",
        ),
        ((*TALL, (1,)), TALL, "input 0: strides: expected one for each of 2 dimensions, got 1"),
        (
            TALL,
            (*TALL, (1, 0)),
            "output 0: a result needs a place for each element: got strides [1, 0] for shape [3, 2], "
            "where the stride of dimension 1 is below 1",
        ),
        (
            TALL,
            (*TALL, (1, 2)),
            "output 0: a result needs a place for each element: got strides [1, 2] for shape [3, 2], "
            "where the stride of dimension 1 is below 3",
        ),
        (
            TALL,
            (*TALL, (2, 2)),
            "output 0: a result needs a place for each element: got strides [2, 2] for shape [3, 2], "
            "where the stride of dimension 1 is below 5",
        ),
        (TALL, (*TALL, (2**62, 1)), "output 0: the strides"),
    ],
)
def test_refuses_strides_that_no_operand_may_have(x: Any, y: Any, message: str) -> None:
    for ask in (_C.check_op, _C.may_alias):
        with pytest.raises(VerifyError) as error:
            ask("copy", [x], [y], {})
        assert str(error.value).startswith(message)
    with pytest.raises(VerifyError):
        _C.select_kernel("copy", [x], [y], {}, "cpu")


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((*TALL, (1, 3)), TALL),
        ((*TALL, (0, 0)), TALL),
        (TALL, (*TALL, (1, 3))),
        (TALL, (*TALL, (1, 17))),
        (("f32", (1, 2), (-7, 1)), ("f32", (1, 2), (0, 1))),  # the stride of a single element means nothing
        (("f32", (0, 2), (-7, 2**62)), ("f32", (0, 2), (0, 0))),  # nor those of no elements
        (("f32", (), ()), ("f32", ())),
    ],
)
def test_accepts_other_strides(x: Any, y: Any) -> None:
    _C.check_op("copy", [x], [y], {})


def test_a_dense_operand_is_refused_with_what_the_op_takes() -> None:
    message = (
        "input 0: non-contiguous: got strides [1, 3] for shape [3, 2], expected [2, 1]; "
        "call .contiguous() on x: relu takes x dense"
    )
    with pytest.raises(VerifyError) as refused:
        _C.check_op("relu", [(*TALL, (1, 3))], [TALL], {})
    assert str(refused.value) == message
    with pytest.raises(KernelError) as call:
        op_call(OpKind.EltwiseRelu, [zeros(2, 3).T], [zeros(3, 2)])
    assert str(call.value) == message
    bias = torch.zeros(8)[::2]
    with pytest.raises(KernelError) as named:
        op_call(OpKind.GemmEpilogue, {"a": zeros(4, 4), "b": zeros(4, 4), "bias": bias}, {"out": zeros(4, 4)})
    assert str(named.value).endswith(
        "call .contiguous() on bias: gemm_epilogue takes a, b, saved strided and bias dense"
    )
    sums = torch.zeros(8)[::2]
    with pytest.raises(KernelError) as result:
        op_call(
            OpKind.GemmEpilogue, {"a": zeros(4, 4), "b": zeros(4, 4)}, {"out": zeros(4, 4), "bias_grad": sums}
        )
    assert str(result.value).endswith(
        "call .contiguous() on bias_grad: gemm_epilogue gives out, pre strided and bias_grad dense"
    )


# ---- memory of two operands ----


def test_refuses_operands_whose_elements_may_meet() -> None:
    block = zeros(8, 8)
    for left, right in ((block[:, :5], block[:, 3:]), (block[1:, 2:], block[:7, :]), (block[::2], block[:4])):
        with pytest.raises(KernelError, match=r"output 0 overlaps input 0 in part"):
            op_call(OpKind.Copy, [left[:, :4]], [right[:, :4]])
    with pytest.raises(KernelError, match=r"output 0 overlaps input 0 in part"):
        op_call(OpKind.Copy, [block], [block.T])
    with pytest.raises(KernelError, match=r"output 0 is the memory of input 0, and copy cannot run in place"):
        op_call(OpKind.Copy, [block[:4, :4]], [block[:4, :4]])
    a = zeros(4, 4)
    with pytest.raises(KernelError, match=r"output 0 overlaps output 1"):
        op_call(OpKind.GemmEpilogue, {"a": a, "b": a}, {"out": block[:4, :4], "pre": block[:4, 3:7]})


def test_operands_may_be_different_columns_of_one_block() -> None:
    block = np.arange(64, dtype=np.float32).reshape(8, 8)
    want = np.concatenate([block[:, :4]] * 2, 1)
    op_call(OpKind.Copy, [block[:, :4]], [block[:, 4:]])
    assert np.array_equal(block, want)
    a, block = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4), np.zeros((4, 8), np.float32)
    op_call(
        OpKind.GemmEpilogue, {"a": a, "b": a}, {"out": block[:, 4:], "pre": block[:, :4]}, {"act": "relu"}
    )
    np.testing.assert_allclose(block[:, :4], a @ a, rtol=1e-6, atol=1e-6)
    assert np.array_equal(block[:, 4:], np.maximum(block[:, :4], 0))


def test_in_place_needs_the_same_layout() -> None:
    counts, attrs = ((1, 1, 0, 1), (1, 0, 0)), {"act_grad": "relu"}
    for saved, out, pairs in (
        (DENSE, DENSE, [(0, 2)]),
        ((*DENSE, (9, 1)), (*DENSE, (9, 1)), [(0, 2)]),
        ((*DENSE, (9, 1)), DENSE, []),
        (DENSE, (*DENSE, (9, 1)), []),
    ):
        assert _C.may_alias("gemm_epilogue", [DENSE, DENSE, saved], [out], attrs, counts) == pairs
    block, a = zeros(4, 8), zeros(4, 4)
    with pytest.raises(KernelError, match=r"output 0 overlaps input 2 in part"):
        op_call(
            OpKind.GemmEpilogue,
            {"a": a, "b": a, "saved": block[:2].reshape(4, 4)},
            {"out": block[:, :4]},
            {"act_grad": "relu"},
        )


# ---- slots of a plan ----

ARENA = 4096  # bytes


def executor(x: Any, y: Any, op: str = "copy", predicate: Any = None) -> _C.Executor:
    arenas = {"temp": _C.Arena("cpu", ARENA), "status": _C.Arena("cpu", 256, visible=True)}
    launch: Any = {
        "op": op,
        "kernel_id": f"{op}_cpu",
        "inputs": [x],
        "outputs": [y],
        "counts": None,
        "attrs": {},
        "workspace": None,
        "predicate": predicate,
    }
    return _C.Executor("cpu", arenas, [launch])


TAIL = ARENA - 4 * (2 * 16 + 1 + 1)  # the last place of a span of 2 * 16 + 1 + 1 elements
END = ("temp", 2048, *TALL)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (
            ("temp", TAIL + 4, *TALL, (16, 1)),
            END,
            r"input 0: the slot f32\[3, 2\] with strides \[16, 1\] of 136 bytes at offset 3964 is outside its arena",
        ),
        (("temp", -4, *TALL, (16, 1)), END, r"of 136 bytes at offset -4 is outside its arena of 4096 bytes"),
        (("temp", 0, *TALL, (2**62, 1)), END, r"input 0: the strides .* span more than 2\^63 bytes"),
        (("temp", 0, *TALL, (2**58, 1)), END, r"is outside its arena of 4096 bytes"),
        (("temp", 0, *TALL, (-2, 1)), END, r"input 0: a stride is 0 or more"),
        (("temp", 0, *TALL, (1,)), END, r"input 0: strides: expected one for each of 2 dimensions, got 1"),
        (("temp", 2, *TALL, (16, 1)), END, r"input 0: misaligned"),
        (("temp", 0, *TALL), ("temp", 1024, *TALL, (0, 1)), r"output 0: a result needs a place for each"),
        (("temp", 2044, *TALL, (16, 1)), END, r"output 0 overlaps input 0 in part"),
    ],
)
def test_refuses_slots_that_cannot_be(x: Any, y: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        executor(x, y)


def test_refuses_other_slots_with_gaps() -> None:
    with pytest.raises(PlanError, match=r"input 0: non-contiguous: .*: relu takes x dense"):
        executor(("temp", 0, *TALL, (16, 1)), END, "relu")
    with pytest.raises(PlanError, match=r"a status is i64\[3\], contiguous, got i64\[3\] with strides \[2\]"):
        executor(("temp", 0, *TALL), END, predicate=("status", 0, "i64", (3,), (2,)))
    with pytest.raises(PlanError, match=r"a slot is a tuple \(arena, offset, dtype, shape\), with strides"):
        executor(("temp", 0, *TALL, (2, 1), 7), END)


def test_a_plan_copies_between_slots_with_gaps() -> None:
    arena = _C.Arena("cpu", ARENA)
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    arena.write(4, values.tobytes())
    launch: Any = {
        "op": "copy",
        "kernel_id": "copy_cpu",
        "inputs": [("temp", 4, "f32", (2, 3), (1, 2))],  # the transpose of what lies there
        "outputs": [("temp", 2048 + 8, "f32", (2, 3), (16, 2))],
        "counts": None,
        "attrs": {},
        "workspace": None,
    }
    _C.Executor("cpu", {"temp": arena}, [launch]).run()
    memory = np.frombuffer(arena.read(2048, 512), np.float32)
    expected = np.zeros(128, np.float32)
    expected[2 : 2 + 3 * 2 : 2], expected[18 : 18 + 3 * 2 : 2] = values.T
    np.testing.assert_array_equal(memory, expected)


# ---- what the kernels of gemm decline ----


@pytest.mark.parametrize(
    ("a", "b", "out", "reason"),
    [
        (
            ("f32", (4, 4), (16, 2)),
            DENSE,
            DENSE,
            "needs a with neighbours along one of its last two dimensions and at least as much between those of the other, "
            "a is f32[4, 4] with strides [16, 2]",
        ),
        (DENSE, ("f32", (4, 4), (3, 1)), DENSE, "b is f32[4, 4] with strides [3, 1]"),
        (DENSE, ("f32", (4, 4), (0, 1)), DENSE, "b is f32[4, 4] with strides [0, 1]"),
        (DENSE, ("f32", (4, 4), (1, 0)), DENSE, "b is f32[4, 4] with strides [1, 0]"),
        (
            DENSE,
            DENSE,
            ("f32", (4, 4), (1, 4)),
            "needs out with neighbours along its last dimension and at least as much between its rows, "
            "out is f32[4, 4] with strides [1, 4]",
        ),
        (
            ("f32", (2, 2, 2, 4, 4), (1024, 256, 32, 4, 1)),
            ("f32", (2, 2, 2, 4, 4)),
            ("f32", (2, 2, 2, 4, 4)),
            "needs a batch of at most two levels, each with one step for every operand, got 3 of "
            "a f32[2, 2, 2, 4, 4] with strides [1024, 256, 32, 4, 1], b f32[2, 2, 2, 4, 4] with strides ",
        ),
    ],
)
@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_gemm_declines_what_needs_a_copy(a: Any, b: Any, out: Any, reason: str, target: str) -> None:
    with pytest.raises(SelectionError) as error:
        _C.select_kernel("gemm", [a, b], [out], {"allow_tf32": True}, target)  # what all of f32 take
    device = "cpu" if target == "cpu" else "cuda"
    kernels = {v["name"] for v in _C.kernel_variants() if v["op"] == "gemm" and v["device"] == device}
    lines = [line.strip() for line in str(error.value).splitlines()[1:]]
    reasons = [line for line in lines if line.split(":")[0] in kernels]
    assert len(reasons) == len(kernels)
    assert all(reason in line for line in reasons if "needs f" not in line and "needs bf" not in line), (
        reasons
    )


def test_gemm_declines_a_saved_value_or_a_second_result_by_columns() -> None:
    by_columns = ("f32", (4, 4), (1, 4))
    for inputs, outputs, attrs, counts, name in (
        ([DENSE, DENSE, by_columns], [DENSE], {"act_grad": "relu"}, ((1, 1, 0, 1), (1, 0, 0)), "saved"),
        ([DENSE, DENSE], [DENSE, by_columns], {}, ((1, 1, 0, 0), (1, 1, 0)), "pre"),
    ):
        with pytest.raises(SelectionError, match=f"cpu_plain: needs {name} with neighbours along its last"):
            _C.select_kernel("gemm_epilogue", inputs, outputs, attrs, "cpu", counts=counts)


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_gemm_takes_torch_views_as_they_are(trans_a: bool, trans_b: bool) -> None:
    """Heads of one projection, and a transposed weight: no caller has to say how they lie."""
    block, weight = torch.randn(3, 5, 2, 3, 8), torch.randn(4, 7).t()
    q, k = block[:, :, :, 0].transpose(1, 2), block[:, :, :, 1].transpose(1, 2)  # [3, 2, 5, 8]
    if trans_a:
        q = q.transpose(2, 3)
    if not trans_b:
        k = k.transpose(2, 3)
    scores = torch.zeros(3, 5, 2, 5).transpose(1, 2)
    attrs = {"trans_a": trans_a, "trans_b": trans_b}
    assert op_call(OpKind.Gemm, [q, k], [scores], attrs) == "gemm_cpu_blas"
    left, right = q.mT if trans_a else q, k.mT if trans_b else k
    torch.testing.assert_close(scores, left @ right)
    x, y = torch.randn(6, 8)[:, 1:8], torch.zeros(6, 9)[:, 3:7]
    x = x.t() if trans_a else x
    op_call(OpKind.Gemm, [x, weight.t() if trans_b else weight], [y], attrs)
    torch.testing.assert_close(y, (x.t() if trans_a else x) @ weight)
