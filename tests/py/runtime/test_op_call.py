"""op_call: what it runs, and that every wrong call is refused with a message of its own and never crashes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from aicf_mlir import _C, KernelError, OpKind, SelectionError, op_call
from aicf_mlir.op_call import describe

Array = np.ndarray[Any, np.dtype[Any]]


def f32(*shape: int, value: float | None = None) -> Array:
    if value is not None:
        return np.full(shape, value, np.float32)
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def desc(
    data: int, shape: Any, *, dtype: str = "f32", strides: Any = None, device: str = "cpu"
) -> _C.TensorDesc:
    return _C.TensorDesc(data, dtype, shape, strides, device)


def raw_call(kind: Any, inputs: list[Any], outputs: list[Any], attrs: dict[str, Any] | None = None) -> str:
    return _C.op_call(kind, inputs, outputs, attrs or {})


# ---- calls that run ----


def test_runs_on_arrays_and_names_the_kernel() -> None:
    x, y, out = f32(3, 5), f32(3, 5, value=2.0), f32(3, 5, value=0.0)
    assert op_call(OpKind.EltwiseAdd, inputs=[x, y], outputs=[out], attrs={}) == "add_cpu"
    np.testing.assert_array_equal(out, x + y)


def test_runs_on_torch_tensors_of_every_float_dtype() -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        x = torch.randn(4, 7).to(dtype)
        out = torch.empty_like(x)
        op_call(OpKind.EltwiseRelu, [x], [out])
        assert torch.equal(out, torch.relu(x))


def test_runs_on_bfloat16_arrays() -> None:
    x = f32(4, 6).astype(ml_dtypes.bfloat16)
    out = np.zeros_like(x)
    op_call(OpKind.EltwiseNeg, [x], [out])
    np.testing.assert_array_equal(out, np.negative(x))


def test_runs_in_place_where_the_schema_allows_it() -> None:
    x = f32(8)
    expected = np.maximum(x, 0)
    op_call(OpKind.EltwiseRelu, [x], [x])
    np.testing.assert_array_equal(x, expected)


def test_runs_on_rank_zero_and_on_nothing() -> None:
    x, out = np.array(-3.0, np.float32), np.array(1.0, np.float32)
    op_call(OpKind.EltwiseRelu, [x], [out])
    assert out == 0
    op_call(OpKind.EltwiseRelu, [f32(0, 4)], [f32(0, 4)])
    raw_call(OpKind.EltwiseRelu, [desc(0, [0])], [desc(0, [0])])  # null without elements


def test_runs_an_odd_address_that_is_a_multiple_of_the_element() -> None:
    x, out = f32(9)[1:], f32(9, value=0.0)[1:]
    op_call(OpKind.EltwiseRelu, [x], [out])
    np.testing.assert_array_equal(out, np.maximum(x, 0))


def test_ignores_the_stride_of_a_single_element() -> None:
    x = torch.randn(1, 6).as_strided((1, 6), (99, 1))
    out = torch.empty(1, 6)
    op_call(OpKind.EltwiseRelu, [x], [out])
    assert torch.equal(out, torch.relu(x))


def test_runs_the_named_kernel() -> None:
    a, b, out = f32(3, 4), f32(4, 5), f32(3, 5, value=0.0)
    assert op_call(OpKind.Gemm, [a, b], [out], kernel_id="gemm_cpu_plain") == "gemm_cpu_plain"
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)


# ---- calls that are refused ----


@pytest.mark.parametrize("kind", [-1, 1000, 2**31, 2**40, 2**70, True, 1.5, "softplus", None])
def test_refuses_a_kind_out_of_range(kind: Any) -> None:
    x = describe(f32(2))
    with pytest.raises(
        KernelError,
        match=r"kind of an operation is one of aicf_mlir.OpKind, or its name .*, got ",
    ):
        raw_call(kind, [x], [x])


@pytest.mark.parametrize(("inputs", "outputs"), [(0, 0), (0, 1), (1, 1), (3, 1), (2, 0), (2, 2)])
def test_refuses_wrong_arity(inputs: int, outputs: int) -> None:
    with pytest.raises(KernelError, match=r"add: expected 2 inputs and 1 output"):
        op_call(OpKind.EltwiseAdd, [f32(2)] * inputs, [f32(2) for _ in range(outputs)])


def test_refuses_null_with_elements() -> None:
    with pytest.raises(KernelError, match=r"output 0: null data for f32\[4\]"):
        raw_call(OpKind.EltwiseRelu, [describe(f32(4))], [desc(0, [4])])


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ([2, -3], r"dimension 1 is negative in shape \[2, -3\]"),
        ([2**31, 2**31, 2], r"more than 2\^63 bytes"),
        ([2**62], r"more than 2\^63 bytes"),
        ([0, 2**62, 4], r"more than 2\^63 bytes"),
        ([2**70], r"shape: expected an int of 64 bits"),
        ([1] * 9, r"rank 9 is above 8"),
        ([1.5], r"shape: expected an int, got 1.5 of type float"),
        (7, r"shape: expected a list of ints, got 7 of type int"),
    ],
)
def test_refuses_a_shape_that_cannot_be(shape: Any, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        desc(f32(4).ctypes.data, shape)


def test_refuses_strides_that_lie() -> None:
    with pytest.raises(KernelError, match=r"strides: expected one for each of 2 dimensions, got 1"):
        desc(f32(4).ctypes.data, [2, 2], strides=[1])
    x = f32(4)
    for strides in ([0], [2], [-1], [2**62]):
        with pytest.raises(
            KernelError, match=r"input 0: non-contiguous: got strides .* expected \[1\]; call .contiguous\(\)"
        ):
            raw_call(OpKind.EltwiseRelu, [desc(x.ctypes.data, [4], strides=strides)], [describe(f32(4))])


def test_refuses_a_transposed_tensor() -> None:
    with pytest.raises(KernelError, match=r"got strides \[1, 2\] for shape \[2, 3\], expected \[3, 1\]"):
        op_call(OpKind.EltwiseRelu, [f32(3, 2).T], [f32(2, 3)])
    with pytest.raises(KernelError, match=r"output 0: non-contiguous"):
        op_call(OpKind.EltwiseRelu, [torch.zeros(2, 3)], [torch.zeros(3, 2).T])


def test_refuses_strides_between_elements() -> None:
    records = np.zeros(4, np.dtype([("flag", np.uint8), ("value", np.float32)]))
    with pytest.raises(KernelError, match=r"input 0: non-contiguous: strides of \(5,\) bytes"):
        op_call(OpKind.EltwiseRelu, [records["value"]], [f32(4)])


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_refuses_a_misaligned_address(shift: int) -> None:
    x = np.zeros(20, np.uint8)[shift : shift + 16].view(np.float32)
    with pytest.raises(
        KernelError, match=r"input 0: misaligned: the address is not a multiple of 4, the size of f32"
    ):
        op_call(OpKind.EltwiseRelu, [x], [f32(4)])


@pytest.mark.parametrize("address", [8, 4096, 2**47, 2**63, 2**64 - 8])
def test_refuses_an_address_that_cannot_be_read(address: int) -> None:
    with pytest.raises(
        KernelError, match=r"input 0: (the CPU cannot read this address|the address plus 16 bytes)"
    ):
        raw_call(OpKind.EltwiseRelu, [desc(address, [4])], [describe(f32(4))])


@pytest.mark.parametrize("address", [-1, 2**64, 1.0, None])
def test_refuses_a_number_that_is_no_address(address: Any) -> None:
    with pytest.raises(KernelError, match=r"data: expected an address from 0 to 2\^64 - 1"):
        desc(address, [4])


def test_refuses_a_shape_far_beyond_its_memory() -> None:
    x = f32(4)
    with pytest.raises(KernelError, match=r"input 0: the CPU cannot read this address"):
        raw_call(OpKind.EltwiseRelu, [desc(x.ctypes.data, [2**44])], [desc(x.ctypes.data, [2**44])])


def test_refuses_an_output_that_is_too_small() -> None:
    with pytest.raises(KernelError, match=r"relu: .*f32\[2, 3\].*f32\[2, 2\]"):
        op_call(OpKind.EltwiseRelu, [f32(2, 3)], [f32(2, 2)])


def test_refuses_mixed_dtypes() -> None:
    with pytest.raises(KernelError, match=r"add: .*f32.*f64"):
        op_call(OpKind.EltwiseAdd, [f32(2), f32(2).astype(np.float64)], [f32(2)])


def test_refuses_unknown_dtypes() -> None:
    with pytest.raises(KernelError, match=r"dtype 'f8' is none of f32, f64, f16, bf16, i64, i32, i1"):
        desc(f32(2).ctypes.data, [2], dtype="f8")
    with pytest.raises(KernelError, match=r"input 0: no kernel takes the dtype complex64"):
        op_call(OpKind.EltwiseRelu, [np.zeros(2, np.complex64)], [f32(2)])
    with pytest.raises(KernelError, match=r"input 0: no kernel takes the dtype >f4"):
        op_call(OpKind.EltwiseRelu, [np.zeros(2, ">f4")], [f32(2)])
    with pytest.raises(KernelError, match=r"input 0: no kernel takes the dtype torch.uint8"):
        op_call(OpKind.EltwiseRelu, [torch.zeros(2, dtype=torch.uint8)], [f32(2)])


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"transposed": True}, r"gemm has no attribute transposed; it takes trans_a, trans_b, allow_tf32"),
        ({"dims": [0]}, r"gemm has no attribute dims; it takes trans_a, trans_b, allow_tf32"),
        ({"trans_a": 1}, r"attribute 'trans_a': expected a bool, got 1 of type int"),
        ({"trans_a": None}, r"attribute 'trans_a': expected a bool, got None of type NoneType"),
    ],
)
def test_refuses_wrong_attributes_of_gemm(attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        op_call(OpKind.Gemm, [f32(2, 2), f32(2, 2)], [f32(2, 2)], attrs)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({}, r"reduce_sum needs the attribute dims"),
        ({"dims": 0}, r"attribute 'dims': expected a list of ints, got 0 of type int"),
        ({"dims": [0.0]}, r"attribute 'dims': expected an int, got 0.0 of type float"),
        ({"dims": [2**80]}, r"attribute 'dims': expected an int of 64 bits"),
        ({"dims": [0], "divisor": float("nan")}, r"attribute 'divisor': expected a finite number, got nan"),
        ({"dims": [0], "divisor": "2"}, r"attribute 'divisor': expected a float, got '2' of type str"),
        ({"dims": [0], "divisor": True}, r"attribute 'divisor': expected a float, got True of type bool"),
    ],
)
def test_refuses_wrong_attributes_of_reduce_sum(attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        op_call(OpKind.ReduceSum, [f32(2, 3)], [f32(3)], attrs)


def test_refuses_an_enum_value_that_is_not_there() -> None:
    loss, y = np.zeros((), np.float32), f32(2, 3)
    with pytest.raises(KernelError, match=r"attribute 'reduction': expected one of mean, sum; got 'max'"):
        op_call(OpKind.MseLoss, [y, y.copy()], [loss], {"reduction": "max"})
    with pytest.raises(KernelError, match=r"attribute 'reduction': expected a string, got 1 of type int"):
        op_call(OpKind.MseLoss, [y, y.copy()], [loss], {"reduction": 1})


def test_refuses_an_output_that_overlaps_an_input_in_part() -> None:
    memory = f32(12)
    with pytest.raises(KernelError, match=r"output 0 overlaps input 0 in part"):
        op_call(OpKind.EltwiseRelu, [memory[:8]], [memory[4:]])


def test_refuses_an_output_in_place_of_an_input_that_is_read_late() -> None:
    a, b = f32(4, 4), f32(4, 4)
    with pytest.raises(
        KernelError, match=r"output 0 is the memory of input 1, and gemm cannot run in place on it"
    ):
        op_call(OpKind.Gemm, [a, b], [b])


def test_refuses_outputs_that_overlap_each_other() -> None:
    z, saved = f32(4, 4), f32(2, 8)
    with pytest.raises(KernelError, match=r"output 0 overlaps output 1"):
        op_call(
            OpKind.GemmEpilogue,
            {"a": f32(4, 3), "b": f32(3, 4), "bias": f32(4)},
            {"out": z, "pre": z},
            {"act": "relu"},
        )
    assert saved.shape == (2, 8)


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs", "message"),
    [
        (
            OpKind.GemmEpilogue,
            ["x", "x"],
            ["y"],
            r"takes a, b, \[bias\], \[saved\] and gives out, .*: say by name",
        ),
        (
            OpKind.GemmEpilogue,
            {"a": "x", "c": "x"},
            {"out": "y"},
            r"gemm_epilogue has no 'c'; it has a, b, bias, saved",
        ),
        (OpKind.GemmEpilogue, {"a": "x"}, {"out": "y"}, r"gemm_epilogue: b: expected one tensor, got 0"),
        (
            OpKind.GemmEpilogue,
            {"a": "x", "b": "x"},
            ["y"],
            r"give inputs and outputs both by name, or both in order",
        ),
        (99, {"a": "x"}, {"out": "y"}, r"expected an operation of aicf_mlir.OpKind, got 99"),
    ],
)
def test_refuses_operands_that_are_not_the_named_ones(
    kind: int, inputs: Any, outputs: Any, message: str
) -> None:
    tensors = {"x": f32(2, 2), "y": f32(2, 2)}

    def given(names: Any) -> Any:
        if isinstance(names, dict):
            return {key: tensors[name] for key, name in names.items()}
        return [tensors[name] for name in names]

    with pytest.raises(KernelError, match=message):
        op_call(kind, given(inputs), given(outputs))


def test_operands_by_name_stand_in_any_order() -> None:
    a, b, bias, out = f32(3, 4), f32(4, 5), f32(5), f32(3, 5, value=0.0)
    op_call(OpKind.GemmEpilogue, {"bias": bias, "b": b, "a": [a]}, {"out": out})
    np.testing.assert_allclose(out, a @ b + bias, rtol=1e-5)


def test_refuses_operands_on_other_devices() -> None:
    x = f32(2)
    with pytest.raises(KernelError, match=r"no device is called 'tpu'; expected cpu, cuda or cuda:N"):
        desc(x.ctypes.data, [2], device="tpu")
    with pytest.raises(KernelError, match=r"expected a tensor on cpu or cuda, got one on meta"):
        op_call(OpKind.EltwiseRelu, [torch.zeros(2, device="meta")], [x])
    if not _C.device_count("cuda"):
        with pytest.raises(KernelError, match=r"no CUDA|no device cuda:0"):
            desc(x.ctypes.data, [2], device="cuda:0")


def test_refuses_what_is_no_dense_tensor() -> None:
    with pytest.raises(KernelError, match=r"input 0: expected a torch.Tensor or a numpy.ndarray, got list"):
        op_call(OpKind.EltwiseRelu, [[1.0]], [f32(1)])  # type: ignore[list-item]
    with pytest.raises(KernelError, match=r"input 0: expected a dense tensor, got torch.sparse_coo"):
        op_call(OpKind.EltwiseRelu, [torch.eye(2).to_sparse()], [f32(2, 2)])
    with pytest.raises(KernelError, match=r"an operand is None"):
        raw_call(OpKind.EltwiseRelu, [None], [describe(f32(2))])


def test_refuses_to_write_a_read_only_array() -> None:
    out = f32(2)
    out.flags.writeable = False
    with pytest.raises(KernelError, match=r"output 0: the array is read-only"):
        op_call(OpKind.EltwiseRelu, [f32(2)], [out])


@pytest.mark.parametrize(
    ("kernel_id", "message"),
    [
        ("gemm_cpu", r"no kernel is called 'gemm_cpu'; gemm has .*gemm_cpu_blas.*gemm_cpu_plain"),
        ("relu_cpu", r"kernel 'relu_cpu' runs relu; gemm has "),
        ("gemm_f32_naive", r"kernel 'gemm_f32_naive' cannot run gemm\(f16\[2, 2\], .* on cpu: runs on cuda"),
        ("gemm_cpu_blas", r"kernel 'gemm_cpu_blas' cannot run .*f16"),
    ],
)
def test_refuses_a_kernel_that_does_not_support_the_call(kernel_id: str, message: str) -> None:
    a, b, out = (f32(2, 2).astype(np.float16) for _ in range(3))
    with pytest.raises(SelectionError, match=message):
        op_call(OpKind.Gemm, [a, b], [out], kernel_id=kernel_id)


def test_a_refused_call_writes_nothing() -> None:
    out = f32(3, value=7.0)
    with pytest.raises(KernelError):
        op_call(OpKind.EltwiseAdd, [f32(3), f32(4)], [out])
    assert (out == 7.0).all()


# ---- on a GPU ----


@pytest.mark.gpu
def test_cuda_refuses_host_memory_and_the_cpu_device_memory() -> None:
    x, device = torch.zeros(4), torch.zeros(4, device="cuda")
    with pytest.raises(KernelError, match=r"operands on two devices: input 0 is on cpu, output 0 on cuda:0"):
        op_call(OpKind.EltwiseRelu, [x], [device])
    with pytest.raises(KernelError, match=r"input 0: expected memory of cuda:0, got host memory"):
        raw_call(OpKind.EltwiseRelu, [desc(x.data_ptr(), [4], device="cuda:0")], [describe(device)])
    with pytest.raises(KernelError, match=r"input 0: the CPU cannot read this address"):
        raw_call(OpKind.EltwiseRelu, [desc(device.data_ptr(), [4])], [describe(x)])


@pytest.mark.gpu
@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_cuda_runs_addresses_that_vector_loads_cannot_take(shift: int) -> None:
    x = torch.randn(8 + shift, device="cuda")[shift:]
    out = torch.empty(8 + shift, device="cuda")[shift:]
    kernel = op_call(OpKind.EltwiseRelu, [x], [out])
    assert torch.equal(out, torch.relu(x))
    assert kernel == ("relu_f32_vec4" if shift == 0 else "relu_f32")
