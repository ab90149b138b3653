"""What a launch moves and computes, counted by hand for small ones."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import pytest
import torch
from plans import make_plan
from torch import nn

from aicf_mlir import compile_train_step
from aicf_mlir.analysis.launches import Work, work_of
from aicf_mlir.analysis.operations import RULES
from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.ir.registry import schemas
from aicf_mlir.profiling import Profile
from aicf_mlir.profiling.rates import Rates, rates_of
from aicf_mlir.text.parsing import parse_module

F32, F64 = 4, 8


def works(text: str, passes: str = "select-kernels,bufferize,plan-memory") -> list[tuple[str, Work]]:
    """Kernel op and work of each launch of the plan of a function."""
    plan: ProgramOp = make_plan(parse_module(text), passes)
    return [(launch.op.data, work) for launch, work in zip(plan.launches, work_of(plan), strict=True)]


def one(body: str, *types: str, results: str) -> Work:
    """Of the only launch of a function of these types; operands are %0, %1, …"""
    arguments = ", ".join(
        f'%x{i}: tensor<{type_}> {{aicf.role = "input", aicf.name = "x{i}"}}' for i, type_ in enumerate(types)
    )
    names = [f"y{i}" for i in range(len(results.split(", ")))]
    given = ", ".join(
        f'tensor<{type_}> {{aicf.role = "output", aicf.name = "{name}"}}'
        for name, type_ in zip(names, results.split(", "), strict=True)
    )
    plain = ", ".join(f"tensor<{type_}>" for type_ in results.split(", "))
    values = ", ".join(f"%{name}" for name in names)
    operands = ", ".join(f"tensor<{type_}>" for type_ in types)
    shown = plain if len(names) == 1 else f"({plain})"
    text = f"""
    func.func @f({arguments}) -> ({given}) {{
      {values} = kernel.{body} : ({operands}) -> {shown}
      func.return {values} : {plain}
    }}
    """
    ((_, work),) = works(text)
    return work


def test_a_product() -> None:
    work = one("gemm a(%x0) b(%x1) {trans_b = true}", "6x5xf32", "7x5xf32", results="6x7xf32")
    assert work == Work((6 * 5 + 7 * 5 + 6 * 7) * F32, 2 * 6 * 7 * 5, "f32")


def test_a_convolution_with_its_epilogue() -> None:
    numbers = "stride = array<i64: 1>, dilation = array<i64: 1>, low = array<i64: 0>, size = array<i64: 4>"
    given = ("2x3x6xf32", "5x3x3xf32")
    products = 2 * (2 * 5 * 4) * (3 * 3)
    plain = one(f"convolution x(%x0) w(%x1) {{{numbers}}}", *given, results="2x5x4xf32")
    assert plain == Work((2 * 3 * 6 + 5 * 3 * 3 + 2 * 5 * 4) * F32, products, "f32")
    whole = one(
        f'convolution x(%x0) w(%x1) bias(%x2) {{{numbers}, act = "relu"}}',
        *given,
        "5xf32",
        results="2x5x4xf32",
    )
    assert whole.nbytes == plain.nbytes + 5 * F32 and whole.flops is not None
    assert whole.flops >= products + 2 * 5 * 4


def test_a_product_that_may_round_its_operands_computes_at_the_rate_of_tf32() -> None:
    work = one("gemm a(%x0) b(%x1) {allow_tf32 = true}", "6x5xf32", "5x7xf32", results="6x7xf32")
    assert work == Work((6 * 5 + 7 * 5 + 6 * 7) * F32, 2 * 6 * 7 * 5, "tf32")


def test_a_product_of_a_transposed_operand_and_a_batch() -> None:
    work = one("gemm a(%x0) b(%x1) {trans_a = true}", "3x5x6xf64", "3x5x7xf64", results="3x6x7xf64")
    assert work == Work(3 * (5 * 6 + 5 * 7 + 6 * 7) * F64, 2 * 3 * 6 * 7 * 5, "f64")


def test_a_product_with_an_epilogue() -> None:
    work = one(
        'gemm_epilogue a(%x0) b(%x1) bias(%x2) -> out, pre {act = "relu"}',
        *("6x5xf32", "5x7xf32", "7xf32"),
        results="6x7xf32, 6x7xf32",
    )
    products, bias, extremes = 2 * 6 * 7 * 5, 42, 42
    assert work == Work((30 + 35 + 7 + 42 + 42) * F32, products + bias + extremes, "f32")


def test_sums_of_a_product_count_the_elements_that_they_sum() -> None:
    work = one(
        "gemm_epilogue a(%x0) b(%x1) -> out, bias_grad {trans_a = true}",
        *("5x6xf32", "5x7xf32"),
        results="6x7xf32, 6xf32",
    )
    assert work == Work((30 + 35 + 42 + 6) * F32, 2 * 6 * 7 * 5 + 30, "f32")


@pytest.mark.parametrize(
    ("op", "each"),
    [("relu", 1), ("neg", 1), ("tanh", 1), ("sigmoid", 4), ("silu", 4), ("gelu", 27)],
    ids=lambda value: str(value),
)
def test_elementwise_ops_count_the_lines_of_their_formula(op: str, each: int) -> None:
    assert one(f"{op} x(%x0)", "6x5xf32", results="6x5xf32") == Work(2 * 30 * F32, 30 * each, "f32")


def test_a_sum_and_rows() -> None:
    work = one("reduce_sum x(%x0) {dims = array<i64: 1>}", "6x5xf64", results="6xf64")
    assert work == Work((30 + 6) * F64, 30, "f64")
    # the largest, a difference, an exponential, a sum and a quotient of each element
    assert one("softmax x(%x0)", "6x5xf32", results="6x5xf32") == Work(60 * F32, 30 * 5, "f32")


def test_losses() -> None:
    assert one("mse_loss y(%x0) t(%x1)", "6x5xf32", "6x5xf32", results="f32") == Work(61 * F32, 90, "f32")
    work = one("cross_entropy logits(%x0) target(%x1)", "6x5xf32", "6xi64", results="f32")
    assert work == Work(31 * F32 + 6 * 8, None, "f32")


@pytest.mark.parametrize(("causal", "pairs"), [("false", 7 * 9), ("true", 1 + 2 + 3 + 4 + 5 + 6 + 7)])
def test_attention_counts_the_pairs_that_meet(causal: str, pairs: int) -> None:
    work = one(
        f"attention query(%x0) key(%x1) value(%x2) {{causal = {causal}, scale = 0.5}}",
        *("2x3x7x4xf32", "2x3x9x4xf32", "2x3x9x5xf32"),
        results="2x3x7x5xf32, 2x3x7xf32, 2x3x7xf32",
    )
    moved = 6 * (7 * 4 + 9 * 4 + 9 * 5 + 7 * 5 + 2 * 7)
    assert work == Work(moved * F32, 2 * 6 * pairs * (4 + 5), "f32")


GENERATED = """
{body}
func.func @f({arguments}) -> (tensor<{result}> {{aicf.role = "output", aicf.name = "y"}}) {{
  %y = {launch}
  func.return %{value} : tensor<{result}>
}}
"""


def generated(body: str, launch: str, result: str, **arguments: str) -> Work:
    given = ", ".join(
        f'%{name}: tensor<{type_}> {{aicf.role = "input", aicf.name = "{name}"}}'
        for name, type_ in arguments.items()
    )
    value = "z" if "%z = " in launch else "y"
    text = GENERATED.format(body=body, launch=launch, result=result, arguments=given, value=value)
    ((_, work),) = works(text)
    return work


def test_a_row_counts_wide_values_by_element_and_others_by_row() -> None:
    body = """
    scalar.body @norm(%x: f32) -> f32 {
      %s = scalar.sum %x : f32
      %r = math.sqrt %s : f32
      %y = arith.divf %x, %r : f32
      scalar.yield %y : f32
    }
    """
    launch = """kernel.rowwise x(%x) {body = @norm, reduced = 1, shape = array<i64: 6, 5>}
        : (tensor<6x5xf32>) -> tensor<6x5xf32>"""
    work = generated(body, launch, "6x5xf32", x="6x5xf32")
    assert work == Work(60 * F32, 30 + 6 + 30, "f32")


SCALED = """
    scalar.body @scaled(%a: f32, %b: f32) -> f32 {
      %c = arith.mulf %a, %b : f32
      %d = math.fma %c, %b, %a : f32
      %e = arith.cmpf olt, %d, %a : f32
      %f = arith.select %e, %d, %a : f32
      scalar.yield %f : f32
    }
"""


def test_an_element_that_strides_repeat_counts_once() -> None:
    launch = """kernel.view %s : (tensor<5xf32>) -> tensor<6x5xf32, strided<[0, 1]>>
      %z = kernel.map x(%x, %y) {body = @scaled, shape = array<i64: 6, 5>}
        : (tensor<6x5xf32>, tensor<6x5xf32, strided<[0, 1]>>) -> tensor<6x5xf32>"""
    work = generated(SCALED, launch, "6x5xf32", x="6x5xf32", s="5xf32")
    assert work == Work((30 + 5 + 30) * F32, 30 * 3, "f32")  # comparisons and selections count nothing


def test_a_tensor_that_is_given_twice_counts_once() -> None:
    """As it is, and transposed; a part of it is another tensor."""
    launch = """kernel.view %x : (tensor<5x5xf32>) -> tensor<5x5xf32, strided<[{strides}]>>
      %z = kernel.map x(%x, %y) {{body = @scaled, shape = array<i64: 5, 5>}}
        : (tensor<5x5xf32>, tensor<5x5xf32, strided<[{strides}]>>) -> tensor<5x5xf32>"""
    work = generated(SCALED, launch.format(strides="1, 5"), "5x5xf32", x="5x5xf32")
    assert work == Work((25 + 25) * F32, 25 * 3, "f32")
    work = generated(SCALED, launch.format(strides="5, 0"), "5x5xf32", x="5x5xf32")
    assert work == Work((25 + 5 + 25) * F32, 25 * 3, "f32")


def profile_of(make: Callable[[], nn.Module], optimizer: Callable[..., torch.optim.Optimizer]) -> Profile:
    torch.manual_seed(0)
    model = make()
    batch = {"x": torch.randn(6, 5), "t": torch.randn(6, 4)}
    return compile_train_step(model, optimizer(model.parameters()), example=batch, device="cpu").profile(
        1, batch
    )


def test_a_whole_step_by_hand() -> None:
    """A linear layer, the mean square and SGD: y = x wᵀ + b, dy = y - t, dw = dyᵀ x, db = sums of dy, w -= lr dw."""
    profile = profile_of(lambda: nn.Linear(5, 4), lambda p: torch.optim.SGD(p, lr=0.1))
    found = {launch.op: (launch.nbytes, launch.flops) for launch in profile.launches}
    x, w, b, y = 6 * 5, 4 * 5, 4, 6 * 4
    assert found["mse_loss"] == ((2 * y + 1) * F32, 3 * y)
    assert found["mse_grad"] == ((1 + 2 * y + y) * F32, 2 * y)
    products = [launch for launch in profile.launches if launch.op == "gemm_epilogue"]
    assert [(p.nbytes, p.flops) for p in products] == [
        ((x + w + b + y) * F32, 2 * 6 * 4 * 5 + y),
        ((y + x + w + b) * F32, 2 * 4 * 5 * 6 + y),
    ]


def test_an_update_is_read_and_written_in_place() -> None:
    profile = profile_of(lambda: nn.Linear(5, 4), lambda p: torch.optim.Adam(p, lr=0.1))
    (update,) = [launch for launch in profile.launches if launch.op == "adam_step"]
    elements, scalars = (
        4 * 5 + 4,
        5 + 2 + 2,
    )  # lr, two betas, eps, weight decay; two corrections of two parameters
    assert update.nbytes == (4 + 3) * elements * F32 + scalars * F64
    assert update.flops is not None and update.flops % elements == 0
    assert 10 < update.flops // elements < 25


def test_every_kernel_op_has_a_rule_or_is_known_to_have_none() -> None:
    without = {name for name, schema in schemas().items() if not schema.generated and name not in RULES}
    assert without == {"cross_entropy", "cross_entropy_grad", "advance"}
    assert RULES.keys() <= schemas().keys()


def test_the_floor_is_the_longer_of_both() -> None:
    rates = Rates(10.0, {"f32": 100.0, "f16": None})
    assert rates.floor(50, 100, "f32") == 5.0
    assert rates.floor(50, 1000, "f32") == 10.0
    assert rates.floor(50, None, "f32") == rates.floor(50, 1000, "f16") == rates.floor(50, 1000, None) == 5.0


def test_rates_are_measured_once(device: str) -> None:
    first = rates_of(device, {"f32"})
    assert first.copy > 1e6 and (first.products["f32"] or 0) > 1e6
    assert rates_of(device, {"f32"}) == first
    assert prod(rates_of(device, set()).products) == 1
