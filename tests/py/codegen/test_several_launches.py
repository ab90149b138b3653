"""Several launches as one: each member computes what it does as a launch of its own, whatever stands beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from cuda_on_host import HostKernels
from generated_cases import GeneratedCase, dense, difference, make, view
from native_code import bits
from programs import run_pipeline
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.codegen import nvrtc
from aicf_mlir.codegen.cuda import generate
from aicf_mlir.codegen.cuda.dependency import all_wait
from aicf_mlir.codegen.schedule import workspace
from aicf_mlir.errors import SelectionError
from aicf_mlir.interpreters import run_function
from aicf_mlir.ir import formula as F
from aicf_mlir.kernels.horizontal import HorizontalKernel, Member, joined, members_of, parted, text_of
from aicf_mlir.kernels.kernel import Kernel, Product, Tensor
from aicf_mlir.text.parsing import parse_module


def each_point(count: int = 1000) -> Kernel:
    body = F.trace(["f32", "f32"], lambda x, y: [x * 2.0 + y, x < y])
    given = (dense("f32", count), Tensor("f32", (count,), (0,), 4))
    return Kernel("map", "sm_90", body, (count,), 0, given, (dense("f32", count), dense("i1", count)))


def one_row(element: str = "f32") -> Kernel:
    """Longer than the threads of a block, so that these add in the order of lanes, then of warps."""
    body = F.trace(["f32", "f32"], lambda x, y: F.row_sum((x - y) * (x - y)) / 6144.0)
    shape = (48, 128)
    given = (dense(element, *shape), dense("f32", *shape))
    return Kernel("rowwise", "sm_90", body, shape, 2, given, (dense("f32"),))


def short_rows() -> Kernel:
    """A few lanes have a row: fewer threads than a block of the others has."""
    body = F.trace(["f32"], lambda x: [x - F.row_max(x), F.row_sum(x)])
    return Kernel(
        "rowwise",
        "sm_90",
        body,
        (37, 24),
        1,
        (dense("f32", 37, 24),),
        (dense("f32", 37, 24), dense("f32", 37)),
    )


def columns() -> Kernel:
    body = F.trace(["f32"], lambda x: F.tanh(F.row_sum(x)))
    return Kernel("colwise", "sm_90", body, (19, 70), 1, (dense("f32", 19, 70),), (dense("f32", 70),))


def product(m: int = 40, n: int = 24, k: int = 16, element: str = "f32") -> Kernel:
    """Of transposes, around an update of w in its place."""
    rounds, element = element == "tf32", "f32" if element == "tf32" else element
    given = Product(dense(element, k, m), dense(element, n, k), True, True, rounds)
    body = F.trace(["f32", "f32", "f32"], lambda z, w, rate: w - rate * z)
    w = dense("f32", m, n)
    rate = Tensor("f32", (m, n), (0, 0), 8)
    return Kernel("gemm_map", "sm_90", body, (m, n), 0, (dense("f32", m, n), w, rate), (w,), given)


def together(parts: Sequence[Kernel], target: str = "sm_90") -> HorizontalKernel:
    members = []
    operands: list[Tensor] = []
    for part in parts:
        given = list(part.operands)
        flags: tuple[str, ...] = ()
        if part.product is not None:
            given = [part.product.a, part.product.b, *given[1:]]
            flags = tuple(
                name for name in ("trans_a", "trans_b", "allow_tf32") if getattr(part.product, name)
            )
        operands += given
        members.append(Member(part.kind, len(given), len(part.results), part.reduced, flags))
    results = tuple(tensor for part in parts for tensor in part.results)
    body = joined([part.body for part in parts])
    kernel = HorizontalKernel(
        "horizontal", target, body, (), 0, tuple(operands), results, members=tuple(members)
    )
    kernel.verify()
    return kernel


PARTS = (each_point, one_row, short_rows, columns, product)


def test_the_text_of_members() -> None:
    kernel = together([part() for part in PARTS])
    text = "map(2 -> 2), rowwise(2 -> 1, reduced 2), rowwise(1 -> 2, reduced 1), colwise(1 -> 1, reduced 1), "
    text += "gemm_map(4 -> 1, trans_a, trans_b)"
    assert text_of(kernel.members) == text
    assert members_of(text) == kernel.members


@pytest.mark.parametrize(
    "text",
    [
        "",
        "map(2 -> 2),",
        "map(2->2)",
        "multi_tensor_map(2 -> 2)",
        "map(2 -> 2, trans_c)",
        "map(2 -> 2, reduced 0)",
        "map(2 -> 2) map(2 -> 2)",
    ],
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(VerifyException, match=re.escape(f"got {text!r}")):
        members_of(text)


def test_the_parts_are_the_kernels() -> None:
    """Their bodies, sizes and products; where a single element lies makes no other kernel."""
    kernels = [part() for part in PARTS]
    for kernel, part in zip(kernels, together(kernels).parts, strict=True):
        assert (part.kind, part.body, part.domain, part.reduced) == (
            kernel.kind,
            kernel.body,
            kernel.domain,
            kernel.reduced,
        )
        assert part.product == kernel.product
    first, second = together([each_point(), each_point()]).parts
    assert first.id == second.id


def test_what_does_not_fit_is_refused() -> None:
    kernel = together([each_point(), columns()])
    with pytest.raises(VerifyException, match="the members have 4 arguments and 3 results, the body 3 and 3"):
        parted(kernel.body, [(2, 2), (2, 1)])
    with pytest.raises(VerifyException, match="member 0 reads argument 1, which is another's"):
        parted(kernel.body, [(1, 2), (2, 1)])
    short = HorizontalKernel(
        "horizontal", "sm_90", kernel.body, (), 0, kernel.operands[1:], kernel.results, members=kernel.members
    )
    with pytest.raises(VerifyException, match="the members have 3 operands, got 2"):
        short.verify()


def test_results_take_the_place_of_operands_of_their_own_member() -> None:
    kernel = together([each_point(), product(), product()])
    alone = product().launch_in_place
    assert alone == {(0, 2)}
    assert kernel.launch_in_place == {(0, 0), (2, 4), (3, 8)}


def test_members_that_are_alike_share_their_text() -> None:
    few, many = (generate(together([product()] * count)) for count in (2, 20))
    assert few.source.count("namespace part") == many.source.count("namespace part") == 1
    assert many.phases[0].count == 10 * few.phases[0].count
    assert many.one_table
    assert all_wait(many.source)


LARGE = {
    "a product of large tiles has a launch of its own": lambda: product(1024, 1024, 64),
    "blocks that share rows take two launches": lambda: Kernel(
        "rowwise",
        "sm_90",
        F.trace(["f32"], F.row_sum),
        (1 << 22,),
        1,
        (dense("f32", 1 << 22),),
        (dense("f32"),),
    ),
    "a colwise has more than one part": lambda: Kernel(
        "colwise",
        "sm_90",
        F.trace(["f32"], F.row_sum),
        (4096, 64),
        1,
        (dense("f32", 4096, 64),),
        (dense("f32", 64),),
    ),
}


@pytest.mark.parametrize("reason", LARGE)
def test_large_launches_stay_by_themselves(reason: str) -> None:
    kernel = together([each_point(), LARGE[reason]()])
    with pytest.raises(SelectionError, match=f"member 1 of a together: {reason}"):
        workspace(kernel)


def test_there_is_none_on_the_cpu() -> None:
    kernel = together([each_point()], "cpu")
    with pytest.raises(SelectionError, match="several launches are one on GPUs alone"):
        workspace(kernel)


def case_of(kernel: HorizontalKernel) -> GeneratedCase:
    rng = np.random.default_rng(3)
    parts = [make("part", part, rng) for part in kernel.parts]
    return GeneratedCase(
        "horizontal",
        kernel,
        tuple(block for part in parts for block in part.operands),
        tuple(array for part in parts for array in part.expected),
    )


def test_on_the_host(tmp_path: Path) -> None:
    """All but products, whose tiles need the GPU's copies; blocks and threads in both orders."""
    kernel = together(
        [each_point(), one_row(), short_rows(), each_point(), columns(), one_row("bf16"), each_point(7)]
    )
    case, host = case_of(kernel), HostKernels([kernel], tmp_path)
    found = host.run(case)
    for number, (block, tensor) in enumerate(zip(found, kernel.results, strict=True)):
        assert not difference(case, number, view(block, tensor)), number
    assert bits(found) == bits(host.run(case, backwards=True))
    assert all((block.view(np.uint8) == 0xFF).all() for block in host.run(case, skip=True))


@pytest.mark.nvrtc
@pytest.mark.parametrize("element", ["f32", "bf16", "f16", "tf32"])
def test_compiles_without_spills(element: str) -> None:
    sizes = ((256, 256, 64), (64, 256, 256), (256, 1, 64), (33, 17, 5))
    parts = [each_point(), one_row(), short_rows(), columns(), *(product(*size, element) for size in sizes)]
    _, report = nvrtc.compile_with_report(generate(together(parts)).source, "sm_90")
    assert not nvrtc.spills(report)


CONSTANT_SUMS = """
func.func @f(%x: tensor<6x3xf32> {aicf.role = "input", aicf.name = "x"})
    -> (tensor<3xf32> {aicf.role = "output", aicf.name = "a"}, tensor<6xf32> {aicf.role = "output", aicf.name = "b"},
        tensor<3xf32> {aicf.role = "output", aicf.name = "c"}) {
  %one = nn.constant {value = 0.5} : tensor<f32>
  %ones = nn.broadcast_to %one : (tensor<f32>) -> tensor<6x3xf32>
  %a = nn.sum %ones {dims = array<i64: 0>} : (tensor<6x3xf32>) -> tensor<3xf32>
  %b = nn.sum %ones {dims = array<i64: 1>} : (tensor<6x3xf32>) -> tensor<6xf32>
  %c = nn.sum %x {dims = array<i64: 0>} : (tensor<6x3xf32>) -> tensor<3xf32>
  func.return %a, %b, %c : tensor<3xf32>, tensor<6xf32>, tensor<3xf32>
}
"""


def test_sums_of_constants_stay_by_themselves() -> None:
    """No operand says over how many elements they go: a member would have the shape of its result as its domain."""
    module = run_pipeline(parse_module(CONSTANT_SUMS), "decompose,lower,fuse{target=sm_90},dce")
    assert not any(op.name == "kernel.horizontal" for op in module.walk())
    results = run_function(module, [np.ones((6, 3), np.float32)])
    assert [list(map(float, result)) for result in results] == [[3.0] * 3, [1.5] * 6, [6.0] * 3]
    builder = F.Builder(())
    half = builder.line("arith.constant", (), "f32", 0.5)
    body = builder.finish([builder.line("scalar.sum", (half,), "f32")])
    members = (Member("rowwise", 0, 1, reduced=1),)
    rows = HorizontalKernel("horizontal", "sm_90", body, (), 0, (), (dense("f32", 6),), members=members)
    with pytest.raises(VerifyException, match="nothing says what it reduces"):
        rows.verify()
