"""Products with generated epilogues on each device against the interpreter, and what is refused."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import children
import pytest
from gemm_maps import random_gemm_map
from generated_cases import dense
from xdsl.dialects.builtin import StringAttr
from xdsl.utils.exceptions import DiagnosticException

from aicf_mlir import _C
from aicf_mlir.codegen import nvrtc
from aicf_mlir.codegen.cuda import generate
from aicf_mlir.codegen.schedule import candidates
from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import Selection
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.nn.rows import ROWS
from aicf_mlir.errors import AicfError
from aicf_mlir.ir import formula as F
from aicf_mlir.ir.printing import to_text
from aicf_mlir.ir.verify import verify_module
from aicf_mlir.kernels.kernel import Kernel, Product, Tensor
from aicf_mlir.reports.sources import sources
from aicf_mlir.stages import Snapshots, run_stages
from aicf_mlir.text.parsing import make_context, parse_module
from aicf_mlir.tools.aicf_run import main as aicf_run


@pytest.mark.parametrize("block", range(4))
def test_random_products_and_epilogues(
    block: int, device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.mlir"
    for seed in range(block * 10, block * 10 + 10):
        module = random_gemm_map(seed)
        verify_module(module)
        path.write_text(to_text(module))
        code = aicf_run([str(path), "--device", device, "--compare=interp", "--seed", str(seed)])
        assert code == 0, f"seed {seed}: {capsys.readouterr()}\n{path.read_text()}"


@pytest.mark.gpu
@pytest.mark.parametrize("block", range(4))
def test_random_products_with_any_tile(
    block: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, target = tmp_path / "f.mlir", _C.target_of("cuda")
    for seed in range(block * 10, block * 10 + 10):
        module, draw = random_gemm_map(seed), random.Random(seed)
        selection = Selection(module, target)
        for op in module.walk():
            if isinstance(op, kernel.GemmMapOp):
                made = selection.generated(op.use)
                assert made is not None
                op.kernel_id = StringAttr(draw.choice(candidates(made)).id)
        verify_module(module)
        path.write_text(to_text(module))
        code = aicf_run([str(path), "--device", "cuda", "--compare=interp", "--seed", str(seed)])
        assert code == 0, f"seed {seed}: {capsys.readouterr()}\n{path.read_text()}"


STAGED = """\
scalar.body @gated(%z: f32, %x: f32, %y: f32, %r: f32, %b: f32) -> (f32, f32) {{
  %0 = arith.mulf %z, %x : f32
  %1 = arith.addf %0, %y : f32
  %2 = arith.mulf %0, %r : f32
  %3 = arith.addf %2, %b : f32
  scalar.yield %3, %1 : f32, f32
}}
func.func @f(%a: tensor<{a}xf32>, %b: tensor<{b}xf32>, %x: tensor<{y}xf32>, %y: tensor<{y}x{other}>, %r: tensor<{rows}xf32>,
    %c: tensor<{columns}xf32>) -> (tensor<{y}xf32>, tensor<{y}x{other}>) {{
  %0 = kernel.view %r : (tensor<{rows}xf32>) -> tensor<{y}xf32, strided<[{by_row}]>>
  %1 = kernel.view %c : (tensor<{columns}xf32>) -> tensor<{y}xf32, strided<[{by_column}]>>
  %2, %3 = kernel.gemm_map a(%a) b(%b) x(%x, %y, %0, %1) {{body = @gated{flags}}} : (tensor<{a}xf32>, tensor<{b}xf32>,
    tensor<{y}xf32>, tensor<{y}x{other}>, tensor<{y}xf32, strided<[{by_row}]>>, tensor<{y}xf32, strided<[{by_column}]>>)
    -> (tensor<{y}xf32>, tensor<{y}x{other}>)
  func.return %2, %3 : tensor<{y}xf32>, tensor<{y}x{other}>
}}
"""
BATCHED, FLIPPED_A, FLIPPED_B = (
    "3x700x64 3x64x260 3x700x260",
    "64x8192 64x64 8192x64",
    "1030x100 516x100 1030x516",
)


@pytest.mark.parametrize("other", ["f32", "bf16"])
@pytest.mark.parametrize(
    "shapes",
    [
        "8192x64 64x64 8192x64",
        "8191x20 20x68 8191x68",
        "4099x64 64x65 4099x65",
        "2048x40 40x1024 2048x1024",
        *(BATCHED, FLIPPED_A, FLIPPED_B),
    ],
)
def test_epilogues_of_many_operands_beside_large_products(
    shapes: str, other: str, device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whole tiles, edges of rows and of columns, single neighbours, tiles of two slices, batches, transposes."""
    a, b, y = shapes.split()
    *batch, rows, columns = y.split("x")
    nothing = "0, " * len(batch)
    flags = ", trans_a = true" if shapes is FLIPPED_A else ", trans_b = true" if shapes is FLIPPED_B else ""
    path = tmp_path / "f.mlir"
    path.write_text(
        STAGED.format(
            a=a,
            b=b,
            y=y,
            rows=rows,
            columns=columns,
            flags=flags,
            other=other,
            by_row=f"{nothing}1, 0",
            by_column=f"{nothing}0, 1",
        )
    )
    code = aicf_run([str(path), "--device", device, "--compare=interp", "--seed", "3"])
    assert code == 0, f"{capsys.readouterr()}\n{path.read_text()}"


@pytest.mark.parametrize(
    ("target", "shared"), [("sm_80", 164), ("sm_86", 100), ("sm_90", 228), ("sm_120", 100)]
)
@pytest.mark.parametrize("k", [64, 65])
def test_what_lies_in_shared_memory_has_room(target: str, shared: int, k: int) -> None:
    """Operands with a number for each row, as many as fit; those that all rows share are none of them."""
    m, n, count = 8192, 64, 9
    body = F.trace(["f32"] * (count + 2), lambda z, *others: sum(others, z))
    row = Tensor("f32", (m, n), (0, 1), 256)
    operands = (dense("f32", m, n), row, *[dense("f32", m, n)] * count)
    given = Product(dense("f32", m, k), dense("f32", k, n), False, False)
    made = generate(Kernel("gemm_map", target, body, (m, n), 0, operands, (dense("f32", m, n),), given))
    (phase,) = made.phases
    of_word = sum(map(int, re.findall(r"static constexpr int kStaged = (\d+);", made.source)))
    blocks = 2 if k == 64 else 1
    assert of_word % 16 == 0 and (of_word > 0) == (k > 64 or shared > 100)
    assert blocks * (phase.shared + 1024) <= shared << 10
    assert ("(staged + 0 + word * 16, a2 +" in made.source) == (of_word > 0)  # a1 is shared by all rows
    if of_word // 16 < count:
        assert blocks * (phase.shared + 1024 + 64 * 64 // blocks * 4) > shared << 10  # one more has none


ELU = """\
func.func @f(%x: tensor<64x32x{element}>, %w: tensor<32x48x{element}>, %r: tensor<64x48x{element}>) -> tensor<64x48x{element}> {{
  %0 = nn.matmul %x, %w : (tensor<64x32x{element}>, tensor<32x48x{element}>) -> tensor<64x48x{element}>
  %1 = nn.elu %0 {{alpha = 1.5}} : tensor<64x48x{element}>
  %2 = nn.add %1, %r : tensor<64x48x{element}>
  func.return %2 : tensor<64x48x{element}>
}}
"""

PRODUCT = """\
scalar.body @shifted(%z: f32, %x: f32) -> f32 {{
  %y = arith.addf %z, %x : f32
  scalar.yield %y : f32
}}
func.func @f(%a: tensor<4x3xf32>, %b: tensor<3x2xf32>, %x: tensor<{x}>) -> tensor<{y}> {{
  %y = kernel.gemm_map a(%a) b(%b) x(%x) {{body = @{body}}} : (tensor<4x3xf32>, tensor<3x2xf32>, tensor<{x}>) -> tensor<{y}>
  func.return %y : tensor<{y}>
}}
"""
REFUSED = {
    "x of another shape": (
        {"x": "2x4xf32"},
        "gemm_map: x[0]: expected the shape of f32[4, 2], got f32[2, 4]",
    ),
    "y of another shape": ({"y": "8xf32"}, "gemm_map: y[0]: expected the shape of f32[4, 2], got f32[8]"),
    "x of another type": ({"x": "4x2xf64"}, "operand 1: the body takes f32, got elements of f64"),
    "y of another type": ({"y": "4x2xi32"}, "result 0: the body gives f32, expected elements of i32"),
    "no such body": ({"body": "nowhere"}, "there is no scalar.body @nowhere in this module"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_what_does_not_fit(name: str) -> None:
    change, message = REFUSED[name]
    text = PRODUCT.format(**{"x": "4x2xf32", "y": "4x2xf32", "body": "shifted", **change})
    with pytest.raises((AicfError, DiagnosticException)) as caught:
        run_stages(parse_module(text), make_context(), target="cpu", first="kernel")
    assert message in str(caught.value)


ACTIVATIONS = [
    name
    for name, row in ROWS.items()
    if len(row.operands) == 1 and "f32" in row.takes and row.result is None and not row.masks
]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_becomes_the_epilogue_of_its_product(name: str) -> None:
    """Whatever row the table has: with its parameters, and with the bias in front of it."""
    text = f"""
func.func @f(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>, %b: tensor<2xf32>) -> tensor<4x2xf32> {{
  %0 = nn.matmul %x, %w : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %1 = nn.add %0, %b : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  %2 = nn.{name} %1 : tensor<4x2xf32>
  func.return %2 : tensor<4x2xf32>
}}
"""
    stages = Snapshots()
    run_stages(parse_module(text), make_context(), first="lowered", after_each=stages)
    (launch,) = (op for op in stages["kernel"].walk() if isinstance(op, KernelOp))
    assert isinstance(launch, kernel.GemmEpilogueOp | kernel.GemmMapOp)


@pytest.mark.skipif(
    not nvrtc.available() and shutil.which("nvcc") is None, reason="neither NVRTC nor nvcc is here"
)
@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_its_plan_for_a_gpu_compiles_without_one(element: str, tmp_path: Path) -> None:
    text = ELU.format(element=element)
    stages = Snapshots()
    run_stages(parse_module(text), make_context(), target="sm_90", first="lowered", after_each=stages)
    code = sources(stages["plan"], "cuda")
    assert code.count("struct Epilogue") == 1
    if nvrtc.available():
        assert nvrtc.compile_cuda(code, "sm_90")
        return
    path = tmp_path / "kernel.cu"
    path.write_text(code)
    done = children.run(["nvcc", "-arch=sm_90", "-cubin", "-o", str(tmp_path / "kernel.cubin"), str(path)])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("columns", "neighbours"), [(9, 1), (4225, 1), (4226, 2), (4228, 4)])
def test_an_epilogue_takes_what_divides_a_row(columns: int, neighbours: int) -> None:
    """Of each member of a batch: what lies behind the row would be written. Tiles of small results have one in any case."""
    text = f"""
func.func @f(%x: tensor<2x9x9xf32>, %w: tensor<2x9x{columns}xf32>) -> tensor<2x9x{columns}xf32> {{
  %0 = nn.matmul %x, %w : (tensor<2x9x9xf32>, tensor<2x9x{columns}xf32>) -> tensor<2x9x{columns}xf32>
  %1 = nn.elu %0 : tensor<2x9x{columns}xf32>
  func.return %1 : tensor<2x9x{columns}xf32>
}}
"""
    stages = Snapshots()
    run_stages(parse_module(text), make_context(), target="sm_90", first="lowered", after_each=stages)
    assert f"const float (&z)[{neighbours}]" in sources(stages["plan"], "cuda")
